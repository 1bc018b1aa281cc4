//! System calls: seccomp. Calls that are not listed return "operation not permitted", so that a library that only tries one continues. No
//! sockets are created, no programs started, no processes signaled, nothing mounted or traced.

use std::{collections::BTreeMap, ops::RangeInclusive};

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Compare, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::Profile;

/// Needed by the async runtime, the allocator, threads and file access, with any arguments.
const FREE: &[c_long] = &[
    // Files; landlock decides which.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    // Threads and time.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_restart_syscall,
    // Signals to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // The inherited socket, and what the async runtime waits with.
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
];

/// Older variants of the above that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Additionally needed by GPU drivers.
const DRIVERS: &[c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_get_mempolicy,
    libc::SYS_mbind,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_get_priority_max,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_getppid,
];

const PROT_EXEC: u64 = libc::PROT_EXEC as u64;
/// `arch_prctl` request by which a process requests the AMX tile registers.
#[cfg(target_arch = "x86_64")]
const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
/// The bits of a socket's type that are not flags.
const SOCKET_KINDS: u64 = 0xf;
/// `prctl` request that names a memory mapping.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// `ioctl` requests to sockets: they name the process that a socket sends signals to (`FIOSETOWN`, `SIOCSPGRP`), and read or change the
/// system's networks. No driver has requests in this range.
const SOCKET_REQUESTS: RangeInclusive<u64> = 0x8900..=0x89ff;
/// Other `ioctl` requests that act on programs outside: signals of a file to its owner, input and selection of a terminal.
const REFUSED_REQUESTS: [u64; 3] = [FIOASYNC, TIOCSTI, TIOCLINUX];
const FIOASYNC: u64 = 0x5452;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts this thread, and all that it starts.
pub(super) fn confine(profile: &Profile) -> Result<(), String> {
    let allowed = rules(profile).map_err(|error| error.to_string())?;
    // Threads are created by `clone`, whose flags can be inspected; "no such call" makes the C library use it instead of `clone3`.
    let newer = Rules::from([(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new())]);
    // The list is installed last: it forbids the call that installs a filter.
    install(newer, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    install(allowed, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

fn install(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|_| "not for this processor".to_owned())?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| error.to_string())?;
    let program: BpfProgram =
        filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

fn rules(profile: &Profile) -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = FREE.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_openat2, Vec::new());
    rules.insert(libc::SYS_openat, opening(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, opening(1)?);
    // Threads, never processes.
    rules.insert(libc::SYS_clone, vec![rule(has(0, libc::CLONE_THREAD as u64))?]);
    rules.insert(libc::SYS_tgkill, vec![rule(is(0, u64::from(std::process::id())))?]);
    rules.insert(libc::SYS_sched_setaffinity, vec![rule(is(0, 0))?]);
    rules.insert(libc::SYS_socketpair, streams()?);
    // Its own limits may be read, not set.
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![is(0, 0)?, wide(2, 0)?])?]);
    rules.insert(
        libc::SYS_fcntl,
        any(
            1,
            &[
                libc::F_DUPFD as u64,
                libc::F_DUPFD_CLOEXEC as u64,
                libc::F_GETFD as u64,
                libc::F_SETFD as u64,
                libc::F_GETFL as u64,
                libc::F_SETFL as u64,
            ],
        )?,
    );
    rules.insert(libc::SYS_prctl, any(0, &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA])?);
    rules.insert(libc::SYS_ioctl, any(1, &[libc::FIONBIO, libc::FIOCLEX, libc::TCGETS])?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_arch_prctl, vec![rule(is(0, ARCH_REQ_XCOMP_PERM))?]);
    let no_code = || Ok::<_, seccompiler::BackendError>(vec![rule(lacks(2, PROT_EXEC))?]);
    rules.insert(libc::SYS_mmap, no_code()?);
    rules.insert(libc::SYS_mprotect, no_code()?);
    if profile.loads_code() {
        rules.insert(libc::SYS_mmap, Vec::new());
        rules.insert(libc::SYS_mprotect, Vec::new());
    }
    if profile.code {
        rules.insert(libc::SYS_memfd_create, Vec::new());
    }
    if profile.local_sockets {
        rules.insert(libc::SYS_socket, streams()?);
        // Sockets of the only kind that can be created.
        rules.insert(libc::SYS_connect, Vec::new());
    }
    if profile.drivers {
        rules.extend(DRIVERS.iter().map(|&call| (call, Vec::new())));
        rules.insert(libc::SYS_ioctl, device_requests()?);
    }
    Ok(rules)
}

/// Unix sockets for streams. One for datagrams reaches every program that receives them, such as the journal, without a connection: also one
/// of a pair, and landlock knows nothing of it.
fn streams() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let kind = masked(1, SOCKET_KINDS, libc::SOCK_STREAM as u64)?;
    Ok(vec![SeccompRule::new(vec![is(0, libc::AF_UNIX as u64)?, kind])?])
}

/// Device calls of drivers: all requests but those that reach other programs. Kernels whose landlock does not limit device calls allow them
/// on every open file.
fn device_requests() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let request = |compare, value| SeccompCondition::new(1, Width::Dword, compare, value);
    let mut below = vec![request(Compare::Lt, *SOCKET_REQUESTS.start())?];
    for refused in REFUSED_REQUESTS {
        below.push(request(Compare::Ne, refused)?);
    }
    Ok(vec![SeccompRule::new(below)?, rule(request(Compare::Gt, *SOCKET_REQUESTS.end()))?])
}

/// Opening a file truncates it only if it is opened for writing, which landlock decides. Linux before 6.2 truncates a file that is opened
/// for reading, too, and its landlock does not know of it.
fn opening(flags: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mode = |mode: i32| masked(flags, libc::O_ACCMODE as u64, mode as u64);
    Ok(vec![
        rule(masked(flags, libc::O_TRUNC as u64, 0))?,
        rule(mode(libc::O_WRONLY))?,
        rule(mode(libc::O_RDWR))?,
    ])
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn rule(condition: Condition) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![condition?])
}

fn any(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values.iter().map(|&value| rule(is(argument, value))).collect()
}

fn is(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, Width::Dword, Compare::Eq, value & u64::from(u32::MAX))
}

fn wide(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, Width::Qword, Compare::Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Condition {
    SeccompCondition::new(argument, Width::Dword, Compare::MaskedEq(mask), value)
}

fn has(argument: u8, bit: u64) -> Condition {
    SeccompCondition::new(argument, Width::Qword, Compare::MaskedEq(bit), bit)
}

fn lacks(argument: u8, bit: u64) -> Condition {
    SeccompCondition::new(argument, Width::Qword, Compare::MaskedEq(bit), 0)
}
