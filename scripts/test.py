"""Runs every program of tests: the slowest first, and several at a time where they do not disturb each other.

    test.py                           builds, runs everything, ends with the numbers of tests that passed, failed and were left out
    test.py record PROGRAM [WORD...]  notes how Cargo starts PROGRAM instead of starting it; Cargo calls this

ISLAND_TEST_JOBS is the number of programs at a time, by default one per processor and at most 4. RUST_TEST_THREADS, if set, is the number of
threads of each. With ISLAND_STRICT=1 a test that is left out fails. The output of each program stays in `tests` below the target folder.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORD = "ISLAND_TEST_RECORD"
# Name of the doc tests, which Cargo runs.
DOC = "doc-tests"
# Seconds that a program is estimated to take that nothing is known of.
UNKNOWN = 5.0
# Seconds without a program that ends, after which those that run are named: a log that is cut off shows which one hangs.
REMINDER = 120.0


def say(text=""):
    print(text, flush=True)


def record(program, words):
    """Writes down folder, environment and command with which Cargo starts a program."""
    environment = {name: value for name, value in os.environ.items() if name != RECORD}
    start = {"command": [program, *words], "folder": os.getcwd(), "environment": environment}
    # Cargo starts one after another, so that the number of the files so far is the next name.
    folder = pathlib.Path(os.environ[RECORD])
    (folder / f"{len(list(folder.iterdir())):04}.json").write_text(json.dumps(start))


def read_plan():
    """Returns what scripts/tests.txt lists: seconds and lane of programs."""
    lines = [line.split() for line in (ROOT / "scripts/tests.txt").read_text().splitlines() if line and not line.startswith("#")]
    return {name: (float(seconds), lane) for name, seconds, lane in lines}


def read_seconds(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


class Program:
    """A program of tests: how it is started, and what became of it."""

    def __init__(self, key, start, lane, estimate, log):
        self.key, self.start, self.lane, self.estimate, self.log = key, start, lane, estimate, log
        # Clones that share the target folder may run tests at the same time.
        self.unfinished = log.with_suffix(f".{os.getpid()}")
        self.share = self.began = self.seconds = self.process = self.status = self.output = None

    def begin(self, share):
        environment = {**self.start["environment"], "ISLAND_TEST_SHARE": str(share)}
        self.share, self.began = share, time.monotonic()
        with self.unfinished.open("wb") as output:
            self.process = subprocess.Popen(
                self.start["command"], cwd=self.start["folder"], env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )

    def has_ended(self):
        self.status = self.process.poll()
        if self.status is not None:
            self.seconds = time.monotonic() - self.began
            self.keep_output()
        return self.status is not None

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.keep_output()

    def keep_output(self):
        self.output = self.unfinished.read_text(errors="replace")
        self.unfinished.replace(self.log)


class Report:
    """Numbers and names of tests, as the harness of each program prints them."""

    def __init__(self):
        self.passed = self.failed = self.ignored = 0
        self.skipped, self.failures = [], []

    def add(self, name, text, status):
        """Adds the output of a program, and returns its numbers."""
        lines = text.splitlines()
        results = [line for line in lines if line.startswith("test result: ")]
        count = lambda word: sum(int(number) for line in results for number in re.findall(rf"(\d+) {word}", line))
        passed, failed = count("passed"), count("failed")
        self.passed, self.failed, self.ignored = self.passed + passed, self.failed + failed, self.ignored + count("ignored")
        # With one thread, the harness has begun the line with the test's name.
        skipped = [found[1] for line in lines if (found := re.search(r"(?:^|\.\.\. )(SKIPPED .*)", line))]
        self.skipped += [*skipped, *(line for line in lines if re.search(r"\.\.\. ignored", line))]
        self.ignored += len(skipped)
        if status != 0:
            names = {line for line in lines if re.match(r"test .* \.\.\. FAILED|---- .* stdout ----|error: ", line)}
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            self.failures += [f"{name}: {how}", *(f"    {line}" for line in sorted(names))]
        return passed, failed


def collect(folder, arguments):
    """Builds the programs, and returns how Cargo starts each, in its order."""
    runner = json.dumps([sys.executable, str(ROOT / "scripts/test.py"), "record"])
    command = ["cargo", "test", *arguments, "--tests", "--config", f"target.'cfg(unix)'.runner = {runner}"]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, RECORD: str(folder)}).returncode
    if status != 0:
        sys.exit(status)
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def name_programs(starts):
    """Yields each with its package and target, and a number where the unit tests of a library and a program have the same name."""
    seen = {}
    for start in starts:
        program = re.sub(r"-[0-9a-f]{16}$", "", pathlib.Path(start["command"][0]).name)
        key = f"{start['environment'].get('CARGO_PKG_NAME', 'unknown')}/{program}"
        seen[key] = seen.get(key, 0) + 1
        yield (key if seen[key] == 1 else f"{key}#{seen[key]}"), start


def next_program(waiting, running, jobs):
    """Returns the slowest program that may start now beside those that run; `waiting` has the slowest first."""
    if len(running) >= jobs or any(program.lane == "alone" for program in running):
        return None
    for program in waiting:
        if program.lane == "any" or program.lane == "whole" and all(other.lane != "whole" for other in running):
            return program
    return waiting[0] if waiting and not running else None


def share_of(running, waiting, jobs, cores):
    """Returns the processors for one more program: all together use one more than there are, since each waits at times."""
    left = cores + 1 - sum(program.share for program in running)
    slots = max(1, min(jobs - len(running), len(waiting)))
    return max(1, min(cores, -(-left // slots)))


def run(programs, jobs, cores, ended):
    """Runs all, and calls `ended` with each."""
    # Those that need the machine for themselves come last, so that they keep no others waiting.
    waiting = sorted(programs, key=lambda program: (program.lane == "alone", -program.estimate))
    running, quiet = [], time.monotonic()
    try:
        while waiting or running:
            while (program := next_program(waiting, running, jobs)) is not None:
                program.begin(1 if program.key == DOC else cores if program.lane == "alone" else share_of(running, waiting, jobs, cores))
                waiting.remove(program)
                running.append(program)
            done = [program for program in running if program.has_ended()]
            running = [program for program in running if program.status is None]
            for program in done:
                ended(program)
            now = time.monotonic()
            if done:
                quiet = now
            elif now - quiet > REMINDER:
                quiet = now
                say("running: " + ", ".join(f"{program.key} ({now - program.began:.0f} s)" for program in running))
            time.sleep(0.05)
    except BaseException:
        for program in running:
            program.stop()
            say(f"\n{program.key} was stopped:\n{program.output}")
        raise


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = int(os.environ.get("ISLAND_TEST_JOBS") or min(cores, 4))
    if jobs < 1:
        sys.exit("test: ISLAND_TEST_JOBS is less than 1")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or subprocess.check_output([ROOT / "scripts/target.sh"], text=True).strip())
    kept = target / "tests"
    kept.mkdir(parents=True, exist_ok=True)
    arguments = ["--locked", "--workspace", "--no-fail-fast"]
    with tempfile.TemporaryDirectory() as folder:
        starts = list(name_programs(collect(pathlib.Path(folder), arguments)))
    runner = str(ROOT / "scripts/test-runner.sh")
    for _, start in starts:
        start["command"].insert(0, runner)
    doc = ["cargo", "test", *arguments, "--doc"]
    starts.append((DOC, {"command": doc, "folder": str(ROOT), "environment": dict(os.environ)}))

    plan, last = read_plan(), read_seconds(kept / "seconds.json")
    programs = []
    for key, start in starts:
        seconds, lane = plan.get(key, (UNKNOWN, "any"))
        log = kept / (key.replace("/", ".") + ".log")
        programs.append(Program(key, start, lane, last.get(key, seconds), log))

    report, begun = Report(), time.monotonic()

    def ended(program):
        passed, failed = report.add(program.key, program.output, program.status)
        verdict = "ok" if program.status == 0 else "FAILED"
        if program.status != 0:
            say(f"\n{program.output.rstrip()}\n")
        say(f"{verdict:6} {program.seconds:7.1f} s  {program.key}: {passed} passed" + (f", {failed} failed" if failed else ""))
        if program.status == 0:
            # After each, so that a run that is interrupted counts, too.
            last[program.key] = round(program.seconds, 1)
            written = kept / f"seconds.{os.getpid()}"
            written.write_text(json.dumps(last, indent=0, sort_keys=True))
            written.replace(kept / "seconds.json")

    say(f"test: {len(starts)} programs, {jobs} at a time; their output is in {kept}")
    run(programs, jobs, cores, ended)

    say("\nslowest:")
    for program in sorted(programs, key=lambda program: -program.seconds)[:10]:
        say(f"{program.seconds:9.1f} s  {program.key}")
    say(f"{time.monotonic() - begun:9.1f} s  all of them")
    if report.failures:
        say("\nfailed:\n" + "\n".join(report.failures))
    if report.skipped:
        say("\nleft out:\n" + "\n".join(sorted(set(report.skipped))))
    say(f"\n{report.passed} passed, {report.failed} failed, {report.ignored} skipped")
    if os.environ.get("ISLAND_STRICT", "0") not in ("", "0") and report.ignored:
        sys.exit("test: nothing may be left out in strict mode")
    if report.passed == 0:
        sys.exit("test: no test ran")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2], sys.argv[3:])
    else:
        main()
