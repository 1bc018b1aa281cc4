#!/usr/bin/env python3
"""Makes the images of the container Cargos from Debian packages, and does nothing twice.

    images.py <recipes> <work> <built> <island-tools>

Each <recipes>/*.txt becomes <built>/image-<name>.tar. cargos/images/README.md states what a recipe contains. <work> keeps
the unpacked packages, so that a change of a recipe or of the entry program fetches nothing.
"""

import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from debian import EPOCH, Lacking, Recipe, Wrong, architecture, collect, digest, fresh, packages_of

# Bumped when the same packages are to be unpacked anew, and when the same files are to make another image.
UNPACKING, PACKING = 3, 1


def say(text):
    print(f"\033[1mcargos:\033[0m {text}", flush=True)


def compile_python(root):
    """What Debian's scripts would do after an installation: Python starts twice as fast where it need not compile."""
    triplet = architecture()[1]
    python, libraries = next((root / "usr/bin").glob("python3.[0-9]*"), None), root / "usr/lib"
    if python is None:
        return
    loader = next((root / "lib" / triplet).glob("ld-linux-*.so.*"))
    folders = [f"usr/lib/{python.name}", "usr/lib/python3/dist-packages"]
    command = [loader, "--inhibit-cache", "--library-path", f"{root}/lib/{triplet}:{libraries}/{triplet}", python, "-S",
               "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/", *folders]
    # The seed decides the order of sets, and with it the bytes. What cannot be compiled (tests of broken code) is not missed.
    subprocess.run(command, cwd=root, env={"PYTHONHOME": f"{root}/usr", "PYTHONHASHSEED": "0"},
                   stdout=subprocess.DEVNULL)


def pack(recipe, image, program, path):
    """The image as a tar archive, the same bytes for the same files."""
    members = {name: image.root / name for name in image.paths}
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".image-", delete=False) as temporary:
        with tarfile.open(fileobj=temporary, mode="w", format=tarfile.GNU_FORMAT) as archive:
            def add(name, kind, mode, data=b"", link=""):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.mtime, entry.linkname, entry.size = kind, mode, EPOCH, link, len(data)
                archive.addfile(entry, io.BytesIO(data))

            overlay = {"bin/island-tools": pathlib.Path(program).read_bytes(),
                       "etc/passwd": b"root:x:0:0::/:\nnobody:x:65534:65534::/tmp:\n",
                       "etc/group": b"root:x:0:\nnogroup:x:65534:\n"}
            overlay |= {target.lstrip("/"): source.read_bytes() for source, target in recipe.files()}
            names = sorted({*members, *overlay, *image.links})
            folders = {"proc", "sys", "dev", "etc"}
            for name in names:
                folders |= {parent.as_posix() for parent in pathlib.PurePosixPath(name).parents} - {"."}
            for folder in sorted(folders):
                add(folder, tarfile.DIRTYPE, 0o755)
            add("tmp", tarfile.DIRTYPE, 0o1777)
            for name in names:
                if name in overlay:
                    add(name, tarfile.REGTYPE, 0o755 if name.startswith("bin/") else 0o644, overlay[name])
                elif name in image.links:
                    add(name, tarfile.SYMTYPE, 0o777, link=image.links[name])
                elif members[name].is_symlink():
                    add(name, tarfile.SYMTYPE, 0o777, link=os.readlink(members[name]))
                else:
                    mode = 0o755 if members[name].stat().st_mode & 0o111 else 0o644
                    add(name, tarfile.REGTYPE, mode, members[name].read_bytes())
        temporary.flush()
        os.chmod(temporary.name, 0o644)
        os.replace(temporary.name, path)


def main(recipes, work, built, program):
    work, built = pathlib.Path(work), pathlib.Path(built)
    recipes = [Recipe(path) for path in sorted(pathlib.Path(recipes).glob("*.txt"))]
    root, unpacked = packages_of(recipes, work, UNPACKING, compile_python)
    tools = pathlib.Path(program).read_bytes()
    for recipe in recipes:
        path, stamp = built / f"image-{recipe.name}.tar", work / f"{recipe.name}.stamp"
        made = digest(PACKING, unpacked, recipe.text, tools, *(file.read_bytes() for file, _ in recipe.files()))
        if path.exists() and fresh(stamp, made):
            continue
        pack(recipe, collect(recipe, root), program, path)
        stamp.write_text(made)
        say(f"made image-{recipe.name}.tar ({path.stat().st_size >> 20} MiB)")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Wrong as error:
        sys.exit(f"cargos: {error}")
    except Lacking as error:
        print(f"cargos: {error}; no image was made, and Cargos without their image are not offered", file=sys.stderr)
        sys.exit(3)
