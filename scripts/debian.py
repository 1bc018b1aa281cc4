"""Unpacks Debian packages into a folder and picks the files of an image from it."""

import glob
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile

ARCHITECTURES = {"x86_64": ("amd64", "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"),
                 "aarch64": ("arm64", "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1")}
# Every file's time: nothing in an image depends on the day it was made.
EPOCH = 1_700_000_000


class Lacking(Exception):
    """Something that this machine lacks."""


class Wrong(Exception):
    """A recipe that is wrong."""


def architecture():
    """Debian's name of this machine's architecture, the name of its folders of libraries, and the path of its loader."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise Lacking(f"there are no recipes for {machine}")
    return ARCHITECTURES[machine]


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
        raise Lacking("this system is neither Debian nor Ubuntu")
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release.get("VERSION_CODENAME", "").strip('"')
    form = "$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    known = subprocess.run(["apt-get", "indextargets", "--format", form, "Identifier: Packages"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    lines = sorted({line.split("|")[1] for line in known if line.split("|")[0] in ("Debian", "Ubuntu")})
    if not suite or not lines:
        raise Lacking("this machine names no sources of Debian or Ubuntu packages")
    return suite, lines


def fresh(stamp, value):
    return stamp.exists() and stamp.read_text() == value


def empty_package(name, folder):
    """A package that is there and holds nothing."""
    control = folder / name / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    # dpkg-deb takes no folder that others cannot read.
    control.parent.chmod(0o755)
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
        include = [f"--include={empty_package(name, folder)}" for name in absent]
        if absent:
            # apt wants them within the folder that it fills.
            include.insert(0, f"--setup-hook=mkdir -p \"$1{folder}\" && cp {folder}/*.deb \"$1{folder}\"")
        archive = folder / "root.tar"
        command = ["mmdebstrap", "--variant=extract", f"--architectures={architecture}",
                   "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
                   "--dpkgopt=path-exclude=/usr/share/locale/*", *include,
                   f"--include={','.join(packages)}", suite, str(archive), *origins]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise Lacking(f"mmdebstrap could not unpack the packages:\n{done.stderr[-2000:]}\n")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        subprocess.run(["tar", "-xf", archive, "-C", root, "--no-same-owner", "--exclude=./dev"], check=True)


class Image:
    """The files that go from the folder of packages into one image."""

    def __init__(self, root, triplet, search):
        self.root, self.paths, self.links = root, set(), {}
        library = root / "usr/lib" / triplet
        self.usual = [root / "lib" / triplet, library]
        # Where Debian's alternatives would lead, had their scripts run.
        self.search = ":".join(map(str, [*self.usual, library / "blas", library / "lapack", library / "pulseaudio",
                                         *(root / folder for folder in search)]))
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
        raise Wrong(f"links without end at {path}")

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
            raise Wrong(f"{self.inside(path)} needs {name}, which is in no package of the recipes")

    def keep(self, pattern, drop):
        found = [path for one in braces(pattern) for path in glob.glob(f"{self.root}{one}")]
        if not found:
            raise Wrong(f"nothing in the packages is called {pattern}")
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


def collect(recipe, root, search=()):
    """The files of one image. Libraries are found in the system's folders and in those of `search`."""
    _, triplet, loader = architecture()
    image = Image(root, triplet, search)
    drop = {pathlib.Path(path) for word in recipe.all("drop") for one in braces(word)
            for path in glob.glob(f"{root}{one}")}
    for program in recipe.all("program"):
        image.add(root / program.lstrip("/"))
    for pattern in recipe.all("keep"):
        image.keep(pattern, drop)
    if image.paths:
        image.add(root / loader)
    return image


def packages_of(recipes, work, version, finish=lambda root: None):
    """The folder with all packages of these recipes, and what identifies them. Nothing is unpacked twice."""
    packages = sorted({name for recipe in recipes for name in recipe.all("package")})
    absent = sorted({name for recipe in recipes for name in recipe.all("absent")})
    root, stamp = work / "root", work / "root.stamp"
    suite, origins = sources()
    unpacked = digest(version, suite, *origins, *packages, "-", *absent)
    work.mkdir(parents=True, exist_ok=True)
    if not fresh(stamp, unpacked):
        for tool in ("mmdebstrap", "dpkg-deb"):
            if not shutil.which(tool):
                raise Lacking(f"{tool} is missing (apt-get install mmdebstrap)")
        print(f"unpacking {len(packages)} Debian packages and what they need", flush=True)
        stamp.unlink(missing_ok=True)
        unpack(suite, origins, packages, absent, architecture()[0], root)
        finish(root)
        stamp.write_text(unpacked)
    return root, unpacked
