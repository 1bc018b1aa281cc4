//! Attempts of a worker under an attacker's control. Each returns `refused`, or how it got through.

use std::{
    fs,
    os::{
        fd::AsRawFd as _,
        unix::net::{UnixDatagram, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use libc::{c_long, c_void, syscall};
use serde_json::Value;

// Requests to `ioctl`; not all of them are in `libc` for every processor.
const FIOSETOWN: c_long = 0x8901;
const SIOCSPGRP: c_long = 0x8902;
const SIOCGIFINDEX: c_long = 0x8933;
const FIOASYNC: c_long = 0x5452;
const TIOCSTI: c_long = 0x5412;
const TIOCLINUX: c_long = 0x541c;

/// All that a sandbox refuses.
pub const HOSTILE: &[&str] = &[
    "read passwd",
    "read home",
    "list root",
    "read agent's environment",
    "read own memory map",
    "read connections",
    "read connections by a thread",
    "name a thread",
    "read launch file",
    "read launch file of a neighbor",
    "read scratch of a neighbor",
    "write scratch of a neighbor",
    "read job logs",
    "write job logs",
    "be spared when memory runs out",
    "read secret",
    "write secret",
    "delete secret",
    "write model",
    "truncate model",
    "truncate model by reading",
    "truncate model by name",
    "write beside scratch",
    "link secret",
    "move out of scratch",
    "chmod model",
    "internet socket",
    "internet socket 6",
    "unix socket",
    "unix socket for datagrams",
    "send to a program's socket",
    "netlink socket",
    "tcp connection",
    "fork",
    "new clone",
    "start a program",
    "execute",
    "trace agent",
    "read agent's memory",
    "signal agent",
    "signal agent's thread",
    "signal own group",
    "signal agent's group",
    "signal every process",
    "signal a thread",
    "queue a signal",
    "queue a signal for a thread",
    "signal by a handle",
    "own its socket's signals",
    "own a socket's signals by a device call",
    "own a socket's signals by another device call",
    "request signals of a socket",
    "list network interfaces",
    "type into a terminal",
    "use a terminal's selection",
    "handle on agent",
    "mount",
    "unmount",
    "new user namespace",
    "join namespace",
    "change root",
    "keyring",
    "add key",
    "performance events",
    "io_uring",
    "bpf",
    "userfaultfd",
    "become root",
    "set all users",
    "load module",
    "load kernel",
    "reboot",
    "set time",
    "set host name",
    "be dumpable",
    "personality",
    "memory file",
    "executable memory",
    "raise limits",
    "pin agent to a processor",
];

/// Makes one attempt in this process, in mount and host name namespaces of its own, and prints the result.
#[expect(clippy::print_stdout, reason = "the test reads it")]
pub fn unsandboxed(input: &str) {
    let input: Value = serde_json::from_str(input).expect("an input");
    // SAFETY: two system calls whose pointers are null or to constants.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS), 0, "new namespaces");
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let made = libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null());
        assert_eq!(made, 0, "mounts that do not propagate");
    }
    let scratch = PathBuf::from(input["scratch"].as_str().expect("a folder"));
    println!("{}", attempt(input["try"].as_str().expect("a name"), &input, &scratch));
}

/// The result of an attempt: `refused`, or how it got through.
#[expect(clippy::too_many_lines, reason = "a line for each attempt")]
pub(crate) fn attempt(name: &str, input: &Value, scratch: &Path) -> String {
    let path = |key: &str| PathBuf::from(input[key].as_str().unwrap_or_default());
    let agent = input["agent"].as_i64().unwrap_or_default();
    let zero = std::ptr::null::<c_void>();
    let number = |call: c_long, arguments: [c_long; 5]| {
        // SAFETY: the kernel checks its arguments; calls that could write to memory get null.
        made(unsafe { syscall(call, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]) })
    };
    let call = |name: c_long| number(name, [0; 5]);
    match name {
        "serve" => "served".to_owned(),
        "write scratch" => io(fs::write(scratch.join("fine"), "x")),
        "read passwd" => io(fs::read("/etc/passwd")),
        "read home" => io(fs::read_dir("/root").or_else(|_| fs::read_dir("/home"))),
        "list root" => io(fs::read_dir("/")),
        "read agent's environment" => io(fs::read(format!("/proc/{agent}/environ"))),
        "read own memory map" => io(fs::read("/proc/self/maps")),
        "read connections" => io(fs::read("/proc/net/tcp")),
        "read connections by a thread" => io(fs::read("/proc/thread-self/net/tcp")),
        "name a thread" => io(fs::write(format!("/proc/self/task/{}/comm", std::process::id()), "x")),
        "read launch file" => io(fs::read(path("launch"))),
        "read launch file of a neighbor" => io(fs::read(path("neighbor").join("launch.json"))),
        "read scratch of a neighbor" => io(fs::read(path("neighbor").join("scratch/file"))),
        "write scratch of a neighbor" => io(fs::write(path("neighbor").join("scratch/file"), "x")),
        "read job logs" => io(fs::read(path("log"))),
        "write job logs" => io(fs::write(path("log"), "x")),
        "be spared when memory runs out" => io(fs::write("/proc/self/oom_score_adj", "0")),
        "read secret" => io(fs::read(path("secret"))),
        "write secret" => io(fs::write(path("secret"), "x")),
        "delete secret" => io(fs::remove_file(path("secret"))),
        "write model" => io(fs::OpenOptions::new().write(true).open(path("model"))),
        "truncate model" => io(fs::OpenOptions::new().write(true).truncate(true).open(path("model"))),
        "truncate model by reading" => {
            let model = std::ffi::CString::new(path("model").display().to_string()).expect("a path");
            let flags = libc::O_RDONLY | libc::O_TRUNC;
            let directory = c_long::from(libc::AT_FDCWD);
            number(libc::SYS_openat, [directory, model.as_ptr() as c_long, flags.into(), 0, 0])
        }
        "truncate model by name" => {
            let model = std::ffi::CString::new(path("model").display().to_string()).expect("a path");
            number(libc::SYS_truncate, [model.as_ptr() as c_long, 0, 0, 0, 0])
        }
        "write beside scratch" => io(fs::write(scratch.join("../../beside"), "x")),
        "link secret" => io(fs::hard_link(path("secret"), scratch.join("link"))),
        "move out of scratch" => {
            fs::write(scratch.join("out"), "x").expect("scratch is writable");
            io(fs::rename(scratch.join("out"), path("secret").with_file_name("moved")))
        }
        "chmod model" => {
            io(fs::set_permissions(path("model"), std::os::unix::fs::PermissionsExt::from_mode(0o777)))
        }
        "internet socket" => {
            number(libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0, 0, 0])
        }
        "internet socket 6" => {
            number(libc::SYS_socket, [libc::AF_INET6.into(), libc::SOCK_DGRAM.into(), 0, 0, 0])
        }
        "unix socket" => number(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0, 0, 0]),
        "unix socket for datagrams" => {
            number(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_DGRAM.into(), 0, 0, 0])
        }
        // Of a pair, which is connected already.
        "send to a program's socket" => match UnixDatagram::pair() {
            Ok((socket, _other)) => io(socket.send_to(b"x", path("program"))),
            Err(_) => "refused".to_owned(),
        },
        "netlink socket" => {
            number(libc::SYS_socket, [libc::AF_NETLINK.into(), libc::SOCK_RAW.into(), 0, 0, 0])
        }
        "tcp connection" => io(std::net::TcpStream::connect(input["listener"].as_str().unwrap_or_default())),
        "fork" => number(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0]),
        "new clone" => number(libc::SYS_clone3, [0, 88, 0, 0, 0]),
        "start a program" => io(std::process::Command::new("/bin/true").status()),
        "execute" => {
            number(libc::SYS_execve, [c"/bin/true".as_ptr() as c_long, zero as c_long, zero as c_long, 0, 0])
        }
        "trace agent" => number(libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), agent, 0, 0, 0]),
        "read agent's memory" => number(libc::SYS_process_vm_readv, [agent, 0, 0, 0, 0]),
        "signal agent" => number(libc::SYS_kill, [agent, 0, 0, 0, 0]),
        "signal agent's thread" => number(libc::SYS_tgkill, [agent, agent, 0, 0, 0]),
        "signal own group" => number(libc::SYS_kill, [0, 0, 0, 0, 0]),
        "signal agent's group" => number(libc::SYS_kill, [-agent, 0, 0, 0, 0]),
        "signal every process" => number(libc::SYS_kill, [-1, 0, 0, 0, 0]),
        "signal a thread" => number(libc::SYS_tkill, [agent, 0, 0, 0, 0]),
        "queue a signal" => number(libc::SYS_rt_sigqueueinfo, [agent, 0, 0, 0, 0]),
        "queue a signal for a thread" => number(libc::SYS_rt_tgsigqueueinfo, [agent, agent, 0, 0, 0]),
        "signal by a handle" => number(libc::SYS_pidfd_send_signal, [0, 0, 0, 0, 0]),
        "own its socket's signals" => number(libc::SYS_fcntl, [0, libc::F_SETOWN.into(), agent, 0, 0]),
        "own a socket's signals by a device call" => call_socket(FIOSETOWN, agent),
        "own a socket's signals by another device call" => call_socket(SIOCSPGRP, agent),
        "request signals of a socket" => call_socket(FIOASYNC, 1),
        "list network interfaces" => call_socket(SIOCGIFINDEX, 0),
        "type into a terminal" => number(libc::SYS_ioctl, [0, TIOCSTI, 0, 0, 0]),
        "use a terminal's selection" => number(libc::SYS_ioctl, [0, TIOCLINUX, 0, 0, 0]),
        "handle on agent" => number(libc::SYS_pidfd_open, [agent, 0, 0, 0, 0]),
        "mount" => number(
            libc::SYS_mount,
            [c"none".as_ptr() as c_long, c"/mnt".as_ptr() as c_long, c"tmpfs".as_ptr() as c_long, 0, 0],
        ),
        "unmount" => number(libc::SYS_umount2, [c"/proc".as_ptr() as c_long, 0, 0, 0, 0]),
        "new user namespace" => number(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0]),
        "join namespace" => number(libc::SYS_setns, [0, 0, 0, 0, 0]),
        "change root" => number(libc::SYS_chroot, [c"/".as_ptr() as c_long, 0, 0, 0, 0]),
        "keyring" => call(libc::SYS_keyctl),
        "add key" => call(libc::SYS_add_key),
        "performance events" => call(libc::SYS_perf_event_open),
        "io_uring" => number(libc::SYS_io_uring_setup, [8, 0, 0, 0, 0]),
        "bpf" => call(libc::SYS_bpf),
        "userfaultfd" => call(libc::SYS_userfaultfd),
        "become root" => call(libc::SYS_setuid),
        "set all users" => number(libc::SYS_setresuid, [0, 0, 0, 0, 0]),
        "load module" => call(libc::SYS_init_module),
        "load kernel" => call(libc::SYS_kexec_load),
        "reboot" => call(libc::SYS_reboot),
        "set time" => call(libc::SYS_settimeofday),
        "set host name" => call(libc::SYS_sethostname),
        "be dumpable" => number(libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0, 0, 0]),
        "personality" => number(libc::SYS_personality, [0, 0, 0, 0, 0]),
        "memory file" => number(libc::SYS_memfd_create, [c"x".as_ptr() as c_long, 0, 0, 0, 0]),
        "executable memory" => {
            let (code, private) =
                (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            number(libc::SYS_mmap, [0, 4096, code.into(), private.into(), -1])
        }
        "raise limits" => {
            let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
            number(libc::SYS_prlimit64, [0, libc::RLIMIT_FSIZE.into(), (&raw const limit) as c_long, 0, 0])
        }
        "pin agent to a processor" => number(libc::SYS_sched_setaffinity, [agent, 0, 0, 0, 0]),
        "hoard" => hoard(),
        "blind the watchdog" => blind(),
        "fool the watchdog" => fool(scratch),
        "silence the watchdog" => {
            silence();
            let held = hold(1 << 30);
            std::thread::sleep(Duration::from_secs(5));
            drop(held);
            "still here".to_owned()
        }
        "grow the log" => grow(2),
        "grow an unlinked file" => {
            let path = scratch.join("unlinked");
            let file = fs::File::create(&path).expect("scratch is writable");
            fs::remove_file(path).expect("it is its own");
            grow(file.as_raw_fd())
        }
        unknown => format!("no attempt is called {unknown:?}"),
    }
}

/// Makes a request to a socket of its own. `first` is the first number of what the request reads.
fn call_socket(request: c_long, first: i64) -> String {
    let (socket, _other) = UnixStream::pair().expect("pairs of sockets are allowed");
    // At least as long as the longest structure of these requests, an interface's.
    let mut argument = [0_i32; 16];
    argument[0] = first as i32;
    let fd = c_long::from(socket.as_raw_fd());
    // SAFETY: the kernel reads and writes at most the array.
    made(unsafe { syscall(libc::SYS_ioctl, fd, request, argument.as_mut_ptr()) })
}

/// Closes the open file of the kernel's memory counter, and waits for the consequence.
fn blind() -> String {
    for fd in counters() {
        // SAFETY: as an attacker would; nothing of this test uses it.
        unsafe { libc::close(fd) };
    }
    std::thread::sleep(Duration::from_secs(5));
    "still here".to_owned()
}

/// Makes every write to standard error fail: nobody reads the pipe.
fn silence() {
    let mut pipe = [0; 2];
    // SAFETY: as an attacker would; the array has room for both ends.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0, "a pipe");
        libc::close(pipe[0]);
        libc::dup2(pipe[1], libc::STDERR_FILENO);
    }
}

/// Puts a file that looks like the kernel's memory counter in its place, and waits for the consequence.
fn fool(scratch: &Path) -> String {
    let path = scratch.join("status");
    fs::write(&path, "VmRSS:\t  300 kB\nRssAnon:\t  100 kB\nThreads:\t1\n").expect("scratch is writable");
    let alike = fs::File::open(path).expect("it is its own");
    for fd in counters() {
        // SAFETY: as an attacker would; nothing of this test uses it.
        unsafe { libc::dup2(alike.as_raw_fd(), fd) };
    }
    std::thread::sleep(Duration::from_secs(5));
    "still here".to_owned()
}

/// Descriptors of ordinary files without content, such as the kernel's memory counter.
fn counters() -> impl Iterator<Item = i32> {
    (3..64).filter(|&fd| {
        let mut about = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: writes to that value; the kernel checks whether the descriptor is open.
        let about = unsafe {
            libc::fstat(fd, about.as_mut_ptr());
            about.assume_init()
        };
        about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_size == 0
    })
}

/// Makes a file longer than a worker's may be. The system ends a process that tries.
fn grow(fd: i32) -> String {
    // SAFETY: changes the length of a file of this test.
    made(unsafe { syscall(libc::SYS_ftruncate, c_long::from(fd), (1_i64 << 30) + 1) })
}

fn io<T>(result: std::io::Result<T>) -> String {
    result.map_or_else(|_| "refused".to_owned(), |_| "got through".to_owned())
}

fn made(result: c_long) -> String {
    let error = std::io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (-1, Some(libc::EPERM | libc::ENOSYS)) => "refused".to_owned(),
        // Any other error is from the call itself: the sandbox did not refuse it.
        (-1, _) => format!("let through: {error}"),
        _ => "got through".to_owned(),
    }
}

fn hoard() -> String {
    drop(hold(64 << 30));
    "got through".to_owned()
}

fn hold(bytes: usize) -> Vec<Vec<u8>> {
    const BLOCK: usize = 16 << 20;
    (0..bytes / BLOCK).map(|_| std::hint::black_box(vec![1_u8; BLOCK])).collect()
}
