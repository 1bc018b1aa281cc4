#!/usr/bin/env python3
"""Makes the images of the container Cargos from Debian packages, and does nothing twice.

    images.py <recipes> <work> <built> <island-tools>

Each <recipes>/*.txt becomes <built>/image-<name>.tar. cargos/images/README.md tells what a recipe says. <work> keeps
the unpacked packages, so that a change of a recipe or of the entry program fetches nothing.
"""

import glob
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# Bumped when the same packages are to be unpacked anew, and when the same files are to make another image.
UNPACKING, PACKING = 3, 1
ARCHITECTURES = {"x86_64": ("amd64", "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"),
                 "aarch64": ("arm64", "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1")}
# Every file's time: nothing in an image depends on the day it was made.
EPOCH = 1_700_000_000


def say(text):
    print(f"\033[1mcargos:\033[0m {text}", flush=True)


def die(text):
    """A recipe that is wrong."""
    sys.exit(f"cargos: {text}")


def give_up(text):
    """Something that this machine lacks: there are no images, and the rest goes on."""
    print(f"cargos: {text}; no image was made, and Cargos without their image are not offered", file=sys.stderr)
    sys.exit(3)


class Recipe:
    """What one image holds."""

    def __init__(self, path):
        self.name, self.text = path.stem, path.read_text()
        self.lines = [line.split() for line in self.text.splitlines() if line.strip() and not line.startswith("#")]
        self.folder = path.parent

    def all(self, word):
        return [line[1] for line in self.lines if line[0] == word]

    def files(self):
        return [(self.folder / line[1], line[2]) for line in self.lines if line[0] == "file"]


def digest(*parts):
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()


def sources():
    """This machine's release and where its own packages come from: nothing is fetched that its owner does not trust."""
    if not shutil.which("apt-get"):
        give_up("this system is neither Debian nor Ubuntu")
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release.get("VERSION_CODENAME", "").strip('"')
    form = "$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    known = subprocess.run(["apt-get", "indextargets", "--format", form, "Identifier: Packages"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    lines = sorted({line.split("|")[1] for line in known if line.split("|")[0] in ("Debian", "Ubuntu")})
    if not suite or not lines:
        give_up("this machine names no sources of Debian or Ubuntu packages")
    return suite, lines


def fresh(stamp, value):
    return stamp.exists() and stamp.read_text() == value


def empty_package(name, folder):
    """A package that is there and holds nothing."""
    control = folder / name / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(f"Package: {name}\nVersion: 99:0\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\n"
                       "Multi-Arch: foreign\nDescription: stands in for a package that nothing here reaches\n")
    package = folder / f"{name}.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", folder / name, package], check=True,
                   stdout=subprocess.DEVNULL)
    return str(package)


def unpack(suite, origins, packages, absent, architecture, root):
    """All packages in one folder. They are unpacked, not installed: no script of theirs runs."""
    with tempfile.TemporaryDirectory(prefix="island-packages-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        # apt wants them within the folder that it fills.
        include = [f"--setup-hook=mkdir -p \"$1{folder}\" && cp {folder}/*.deb \"$1{folder}\""]
        include += [f"--include={empty_package(name, folder)}" for name in absent]
        archive = folder / "root.tar"
        command = ["mmdebstrap", "--variant=extract", f"--architectures={architecture}",
                   "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
                   "--dpkgopt=path-exclude=/usr/share/locale/*", *include,
                   f"--include={','.join(packages)}", suite, str(archive), *origins]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            give_up(f"mmdebstrap could not unpack the packages:\n{done.stderr[-2000:]}\n")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        subprocess.run(["tar", "-xf", archive, "-C", root, "--no-same-owner", "--exclude=./dev"], check=True)


def compile_python(root, triplet):
    """What Debian's scripts would do after an installation: Python starts twice as fast where it need not compile."""
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


class Image:
    """The files that go from the folder of packages into one image."""

    def __init__(self, root, triplet):
        self.root, self.paths, self.links = root, set(), {}
        library = root / "usr/lib" / triplet
        self.usual = [root / "lib" / triplet, library]
        # Where Debian's alternatives would lead, had their scripts run.
        self.search = ":".join(map(str, [*self.usual, library / "blas", library / "lapack", library / "pulseaudio"]))
        self.loader = next((root / "lib" / triplet).glob("ld-linux-*.so.*"))
        self.triplet = triplet

    def inside(self, path):
        return path.relative_to(self.root).as_posix()

    def resolve(self, path):
        """A path with its links followed within the root, each of which goes into the image too."""
        parts, here = list(path.relative_to(self.root).parts), self.root
        for _ in range(400):
            if not parts:
                return here
            part = parts.pop(0)
            if part == "..":
                here = here.parent if here != self.root else here
                continue
            step = here / part
            if step.is_symlink():
                self.paths.add(self.inside(step))
                target = pathlib.PurePosixPath(os.readlink(step))
                if target.is_absolute():
                    here, parts = self.root, [*target.parts[1:], *parts]
                else:
                    parts = [*target.parts, *parts]
            else:
                here = step
        die(f"links without end at {path}")

    def add(self, path):
        """A file, with what it loads if it is a program or a library."""
        path = self.resolve(path)
        name = self.inside(path)
        if name in self.paths or not path.is_file():
            return
        self.paths.add(name)
        with path.open("rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        if is_elf:
            self.add_libraries(path)

    def add_libraries(self, path):
        command = [self.loader, "--inhibit-cache", "--library-path", self.search, "--list", path]
        found = subprocess.run(command, capture_output=True, text=True).stdout
        for name, target in re.findall(r"^\s*(\S+) => (\S+) \(", found, re.M):
            target = pathlib.Path(target)
            if target.is_relative_to(self.root):
                # The loader in the image has no list of folders: what lies elsewhere gets a link.
                if target.parent not in self.usual and target.parent.parent in self.usual:
                    self.links[f"usr/lib/{self.triplet}/{name}"] = f"{target.parent.name}/{target.name}"
                self.add(target)
        for name in re.findall(r"^\s*(\S+) => not found", found, re.M):
            die(f"{self.inside(path)} needs {name}, which is in no package of the recipes")

    def keep(self, pattern, drop):
        found = [path for one in braces(pattern) for path in glob.glob(f"{self.root}{one}")]
        if not found:
            die(f"nothing in the packages is called {pattern}")
        for path in map(pathlib.Path, found):
            inner = sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else [path]
            for file in inner:
                if not any(file == out or out in file.parents for out in drop):
                    if file.is_symlink() or file.is_file():
                        self.add(file)


def braces(pattern):
    found = re.search(r"\{([^}]*)\}", pattern)
    if not found:
        return [pattern]
    head, tail = pattern[:found.start()], pattern[found.end():]
    return [whole for part in found[1].split(",") for whole in braces(head + part + tail)]


def collect(recipe, root, triplet, loader):
    image = Image(root, triplet)
    drop = {pathlib.Path(path) for word in recipe.all("drop") for one in braces(word)
            for path in glob.glob(f"{root}{one}")}
    for program in recipe.all("program"):
        image.add(root / program.lstrip("/"))
    for pattern in recipe.all("keep"):
        image.keep(pattern, drop)
    if image.paths:
        image.add(root / loader)
    return image


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
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        give_up(f"there are no recipes for {machine}")
    architecture, triplet, loader = ARCHITECTURES[machine]
    recipes = [Recipe(path) for path in sorted(pathlib.Path(recipes).glob("*.txt"))]
    packages = sorted({name for recipe in recipes for name in recipe.all("package")})
    absent = sorted({name for recipe in recipes for name in recipe.all("absent")})
    root, stamp = work / "root", work / "root.stamp"
    suite, origins = sources()
    unpacked = digest(UNPACKING, suite, *origins, *packages, "-", *absent)
    work.mkdir(parents=True, exist_ok=True)
    if not fresh(stamp, unpacked):
        for tool in ("mmdebstrap", "dpkg-deb"):
            if not shutil.which(tool):
                give_up(f"{tool} is missing (apt-get install mmdebstrap)")
        say(f"unpacking {len(packages)} Debian packages and what they need")
        stamp.unlink(missing_ok=True)
        unpack(suite, origins, packages, absent, architecture, root)
        compile_python(root, triplet)
        stamp.write_text(unpacked)
    tools = pathlib.Path(program).read_bytes()
    for recipe in recipes:
        path, stamp = built / f"image-{recipe.name}.tar", work / f"{recipe.name}.stamp"
        made = digest(PACKING, unpacked, recipe.text, tools, *(file.read_bytes() for file, _ in recipe.files()))
        if path.exists() and fresh(stamp, made):
            continue
        pack(recipe, collect(recipe, root, triplet, loader), program, path)
        stamp.write_text(made)
        say(f"made image-{recipe.name}.tar ({path.stat().st_size >> 20} MiB)")


if __name__ == "__main__":
    main(*sys.argv[1:])
