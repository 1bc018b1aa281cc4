#!/usr/bin/env python3
"""Makes the images of an Island network from Debian packages, ours among them, and does nothing twice.

    build.py <recipes> <work> <packages> <built> <version>

Each <recipes>/*.txt becomes <built>/<name>_<version>.tar: an OCI image layout that `docker load` reads as well. README.md
states what a recipe consists of. <packages> has our packages; <work> keeps those of Debian, unpacked.
"""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from debian import EPOCH, Lacking, Recipe, Wrong, architecture, braces, collect, digest, fresh, packages_of  # noqa: E402

# Bumped when the same packages are to be unpacked anew, and when the same files are to make another image.
UNPACKING, PACKING = 1, 1
# The user of every image: files of one program are read by others, on volumes that they share.
USER, ID = "island", 10001


def say(text):
    print(f"\033[1mimages:\033[0m {text}", flush=True)


def with_ours(root, work, debs):
    """The folder of packages with these of ours over it. Files of Debian's packages are links to one copy of them."""
    ours = work / "root-with-ours"
    shutil.rmtree(ours, ignore_errors=True)
    if not debs:
        return root
    subprocess.run(["cp", "-al", root, ours], check=True)
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", deb, ours], check=True)
    return ours


def overlay(recipe, image):
    """Files that no package contains."""
    home = next(iter(recipe.all("home")), "/")
    files = {
        "etc/passwd": f"root:x:0:0::/:/bin/false\n{USER}:x:{ID}:{ID}::{home}:/bin/sh\n".encode(),
        "etc/group": f"root:x:0:\n{USER}:x:{ID}:\n".encode(),
        "etc/nsswitch.conf": b"hosts: files dns\n",
    }
    certificates = sorted((image.root / "usr/share/ca-certificates").rglob("*.crt"))
    if "ca-certificates" in recipe.all("package"):
        files["etc/ssl/certs/ca-certificates.crt"] = b"".join(file.read_bytes() for file in certificates)
    return files | {target.lstrip("/"): source.read_bytes() for source, target in recipe.files()}


def layer(recipe, image):
    """The files of the image as a tar archive, the same bytes for the same files."""
    contents, own = overlay(recipe, image), {path.strip("/") for path in recipe.all("folder")}
    links = dict(image.links)
    links |= {path.strip("/"): "/bin/busybox" for word in recipe.all("applet") for path in braces(word)}
    members = {name: image.root / name for name in image.paths}
    folders = {"proc", "sys", "dev", "etc", *own}
    names = sorted({*members, *contents, *links})
    for name in [*names, *own]:
        folders |= {parent.as_posix() for parent in pathlib.PurePosixPath(name).parents} - {"."}
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w", format=tarfile.GNU_FORMAT) as archive:
        def add(name, kind, mode, data=b"", link="", owner=0):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime, entry.linkname, entry.size = kind, mode, EPOCH, link, len(data)
            entry.uid = entry.gid = owner
            archive.addfile(entry, io.BytesIO(data))

        for folder in sorted(folders):
            add(folder, tarfile.DIRTYPE, 0o700 if folder in own else 0o755, owner=ID if folder in own else 0)
        add("tmp", tarfile.DIRTYPE, 0o1777)
        for name in names:
            if name in contents:
                add(name, tarfile.REGTYPE, 0o755 if contents[name].startswith(b"#!") else 0o644, contents[name])
            elif name in links:
                add(name, tarfile.SYMTYPE, 0o777, link=links[name])
            elif members[name].is_symlink():
                add(name, tarfile.SYMTYPE, 0o777, link=os.readlink(members[name]))
            else:
                mode = 0o755 if members[name].stat().st_mode & 0o111 else 0o644
                add(name, tarfile.REGTYPE, mode, members[name].read_bytes())
    return archived.getvalue()


def write(path, name, version, settings, files):
    """An OCI image layout with one image, and the list by which `docker load` reads it."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    blobs = {}

    def blob(kind, data):
        data = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
        found = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{found}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{found}", "size": len(data)}

    def file_of(descriptor):
        return "blobs/" + descriptor["digest"].replace(":", "/")

    content = blob("layer.v1.tar", files)
    labels = {"org.opencontainers.image.title": name, "org.opencontainers.image.version": version}
    config = blob("config.v1+json", {
        "architecture": architecture()[0], "os": "linux", "created": created,
        "config": {"User": f"{ID}:{ID}", "Labels": labels} | settings,
        "rootfs": {"type": "layers", "diff_ids": [content["digest"]]},
        "history": [{"created": created, "comment": "made from Debian packages"}],
    })
    manifest = blob("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [content]})
    manifest["annotations"] = {"io.containerd.image.name": f"{name}:{version}", "org.opencontainers.image.ref.name": version}
    blobs["oci-layout"] = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    blobs["manifest.json"] = json.dumps(
        [{"Config": file_of(config), "RepoTags": [f"{name}:{version}"], "Layers": [file_of(content)]}]).encode()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".image-", delete=False) as temporary:
        with tarfile.open(fileobj=temporary, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for member, data in sorted(blobs.items()):
                entry = tarfile.TarInfo(member)
                entry.mode, entry.mtime, entry.size = 0o644, EPOCH, len(data)
                archive.addfile(entry, io.BytesIO(data))
        temporary.flush()
        os.chmod(temporary.name, 0o644)
        os.replace(temporary.name, path)


def main(recipes, work, packages, built, version):
    work, built = pathlib.Path(work), pathlib.Path(built)
    built.mkdir(parents=True, exist_ok=True)
    recipes = [Recipe(path) for path in sorted(pathlib.Path(recipes).glob("*.txt"))]
    root, unpacked = packages_of(recipes, work, UNPACKING)
    for recipe in recipes:
        name = f"island-{recipe.name}"
        path, stamp = built / f"{name}_{version}.tar", work / f"{recipe.name}.stamp"
        settings = recipe.folder / f"{recipe.name}.json"
        debs = [pathlib.Path(packages) / f"{deb}_{version}_{architecture()[0]}.deb" for deb in recipe.all("deb")]
        for deb in debs:
            if not deb.is_file():
                raise Lacking(f"{deb} is missing (make deb)")
        parts = [file.read_bytes() for file in (settings, *debs, *(file for file, _ in recipe.files()))]
        made = digest(PACKING, unpacked, recipe.text, *parts)
        if path.exists() and fresh(stamp, made):
            continue
        image = collect(recipe, with_ours(root, work, debs), search=["usr/lib/island"])
        write(path, name, version, json.loads(settings.read_text()), layer(recipe, image))
        stamp.write_text(made)
        say(f"made {path} ({path.stat().st_size >> 20} MiB)")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Lacking, Wrong) as error:
        sys.exit(f"images: {error}")
