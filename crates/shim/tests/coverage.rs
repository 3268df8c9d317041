//! `docs/shim-coverage.md` says what the shim does about each function of the C library that takes
//! or makes a descriptor. These tests hold it against the built library and the installed C
//! library.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions of the C library that are not about descriptors, by their names: `*` stands for
/// anything, at the end or the beginning. Leading underscores and a `_chk` at the end are not
/// looked at.
const NOT_ABOUT_DESCRIPTORS: &[(&str, &str)] = &[
    (
        "strings and memory",
        "mem[a-e]* memfrob mem[g-z]* str* stp* bcmp bcopy bzero rawmem* explicit_bzero swab ffs* index rindex basename dirname a64l l64a",
    ),
    ("wide characters", "wcs* wcp* wmem* wc* mb* btowc c8rto* c16rto* c32rto* wctob isw* tow*"),
    ("character classes", "is[a-z]* ctype* to?scii* tolower* toupper* toascii*"),
    (
        "numbers",
        "abs labs llabs imax* div ldiv lldiv ato? atoll ?cvt ?cvt_r q?cvt q?cvt_r copysign* finite* frexp* ldexp* modf* scalbn* signbit* isinf* isnan*",
    ),
    (
        "random numbers",
        "*rand48 *rand48_r *rand *rand_r *random *random_r arc4random* initstate* setstate* seed48* lcong48* getentropy",
    ),
    (
        "sorting and searching",
        "bsearch qsort* lsearch lfind tsearch tfind tdelete twalk* tdestroy hsearch* hcreate* hdestroy* insque remque",
    ),
    (
        "allocation",
        "malloc* calloc realloc* free cfree valloc pvalloc aligned_alloc posix_memalign mallinfo* mallopt mtrace muntrace mcheck* mprobe sbrk brk default_morecore obstack* libc_* tr_break",
    ),
    (
        "memory maps",
        "mprotect munmap mremap msync mlock mlock2 munlock* madvise posix_madvise mincore pkey_* remap_file_pages shmat shmdt shmget shmctl sstk",
    ),
    (
        "threads",
        "pthread_[a-b]* pthread_[d-z]* pthread_cl* pthread_con* pthread_create thrd_* mtx_* cnd_* tss_* call_once sem_destroy sem_getvalue sem_init sem_post sem_*wait sem_unlink register_atfork",
    ),
    (
        "signals",
        "sig[a-m]* signal sig[o-z]* *sigpause sysv_signal bsd_signal ssignal gsignal psignal psiginfo raise kill killpg tgkill pause alarm ualarm",
    ),
    (
        "time",
        "time time?s timespec* timeg* timel* timezone ?timeofday *timeofday *times *time *time_r *time64 timer_* timespec_* clock* adjtimex sleep usleep nanosleep tzset dysize getdate* ntp_gettimex getitimer setitimer",
    ),
    (
        "scheduling and limits",
        "sched_* nice getpriority setpriority getrusage ulimit vlimit getcpu sprofil profil",
    ),
    (
        "processes, otherwise",
        "wait wait3 wait4 waitid waitpid getpid getppid gettid getpgid setpgid getpgrp setpgrp bsd_getpgrp getsid setsid *setjmp* *longjmp* getcontext setcontext makecontext swapcontext cxa_* on_exit ptrace personality process_vm_*",
    ),
    (
        "users and groups",
        "get*id get*uid get*gid getgroups group_member getlogin* setlogin cuserid getpass lckpwdf ulckpwdf getres* capget",
    ),
    (
        "system",
        "sysconf sysctl sysinfo uname gethostname sethostname getdomainname setdomainname reboot syslog vsyslog setlogmask openlog klogctl acct swapon swapoff quotactl getpagesize getdtablesize get_*nprocs* get_*phys_pages getloadavg getauxval arch_prctl modify_ldt iopl ioperm vhangup ustat uselib nfsservctl bdflush create_module delete_module init_module query_module get_kernel_syms x86_*",
    ),
    (
        "paths",
        "sync umask access eaccess euidaccess chdir chmod chown getcwd getwd get_current_dir_name canonicalize_file_name realpath link unlink symlink readlink rename remove mkdir rmdir mkfifo mknod xmknod mkdtemp mktemp tempnam tmpnam* stat* lstat* xstat* lxstat* statfs* statvfs* truncate* lchmod lchown chflags revoke mount umount* pivot_root pathconf ftok *xattr glob* fnmatch wordexp wordfree utmpname utmpxname",
    ),
    (
        "directories by their stream",
        "rewinddir seekdir telldir alphasort* versionsort* fts*_children fts*_close fts*_read fts*_set",
    ),
    (
        "streams",
        "printf* *[e-z]printf* *_printf* *scanf* IO_[a-e]* IO_f[e-n]* IO_f[p-z]* IO_[g-o]* IO_p[a-n]* IO_p[p-z]* IO_[q-z]* f*unlocked *get*_unlocked *put*_unlocked fget* fput* get?c getc getchar gets getw getwchar put?c putc putchar puts putw putwchar getdelim getline ungetc ungetwc fread fwrite feof ferror clearerr* fflush fpurge fseek* ftell* rewind fwide setbuf* setvbuf setlinebuf flockfile funlockfile ftrylockfile fmemopen open_memstream open_wmemstream fopencookie fbufsize flbf fpending freadable freading fwritable fwriting fsetlocking fsetpos* flushlbf overflow underflow uflow woverflow wunderflow wuflow perror",
    ),
    (
        "messages and ends",
        "err errx verr verrx warn* vwarn* error error_at_line assert* backtrace backtrace_symbols fmtmsg stack_chk_fail",
    ),
    (
        "databases",
        "get*ent* set*ent* end*ent* put*ent* sget* getpw* getgr* getsp* getsg* gethostby* getnetby* getproto* getserv* getrpc* getalias* getutid* getutline* getutmp* getutx* pututline pututxline updwtmp* login logout logwtmp getttynam getfsfile getfsspec getusershell setusershell endusershell addmntent hasmntopt getnetname getmntent* rpmatch nss_* innetgr *hosts_access check_rhosts_file",
    ),
    (
        "names and addresses",
        "getaddrinfo* freeaddrinfo getnameinfo gai_* getifaddrs freeifaddrs if_* inet* ether_* hton? ntoh? herror hstrerror h_errno_location res_* ns_* dn_* gethostid sethostid netname2* user2netname host2netname ruserok* iruserok* ivaliduser* ruserpass cmsg_nxthdr rcmd_errstr",
    ),
    (
        "Sun RPC, between its sockets",
        "xdr* xprt_* svc_* svcerr_* svcraw_create svcudp_enablecache svcauthdes_stats clnt_* clntraw_create auth* pmap_* key_* rpc_* callrpc registerrpc seterr_reply get_myaddress getpublickey getsecretkey rtime cbc_crypt ecb_crypt des_setparity passwd2des xencrypt xdecrypt",
    ),
    (
        "locale",
        "*locale nl_langinfo* localeconv iconv* catgets *gettext *textdomain bind_textdomain_codeset dc*gettext",
    ),
    (
        "environment and arguments",
        "*getenv setenv putenv unsetenv clearenv envz_* arg[pz]* argp_* argz_* getopt* posix_getopt getsubopt confstr addseverity",
    ),
    (
        "the loader, versions, profiling",
        "dl* gnu_* *mcount* mcleanup moncontrol monstartup profile_frequency cyg_profile_* libc_*",
    ),
    (
        "X/Open's own, and the compiler's",
        "xpg_basename xpg_strerror_r errno_location fentry__ chk_fail",
    ),
    ("regular expressions", "re_* reg* step advance"),
    ("terminals' settings", "cf*speed cfmakeraw ctermid ttyslot"),
    ("System V", "msg??? msgget msgctl msgrcv msgsnd sem??? semget semctl semop semtimedop"),
    ("spawn's attributes", "posix_spawnattr_*"),
    ("message queues' names", "mq_unlink"),
    ("devices", "gnu_dev_*"),
];

/// What names of functions about descriptors look like: judges functions that are newer than the
/// page.
const FAMILIES: &[&str] = &[
    "fd", "sock", "recv", "send", "read", "write", "poll", "select", "open", "close", "pipe",
    "dup", "exec", "spawn", "fork", "accept", "connect", "fcntl", "ioctl", "clone", "splice",
];

/// The C library's version that the page was written from.
const PAGE_VERSION: (u32, u32) = (2, 36);

fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The shim as Cargo built it for this test.
fn shim() -> PathBuf {
    ginnel_tests::build::shim()
}

/// The C library that this test is linked with.
fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).expect("a C library");
    line.split_whitespace().last().expect("a path").into()
}

/// The functions a library defines for others, each with the version it came with, where it says.
fn exports(library: &Path) -> BTreeMap<String, Option<(u32, u32)>> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm runs");
    assert!(
        output.status.success(),
        "nm {}: {}",
        library.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let [_, kind, symbol] = line.split_whitespace().collect::<Vec<_>>()[..] else { continue };
        if !matches!(kind, "T" | "W" | "i") || symbol.ends_with("GLIBC_PRIVATE") {
            continue;
        }
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
        let mut numbers = version
            .trim_start_matches(['@', '_', 'G', 'L', 'I', 'B', 'C'])
            .split('.')
            .map_while(|n| n.parse().ok());
        found.insert(name.to_owned(), numbers.next().zip(numbers.next()));
    }
    found
}

/// The page's tables: each name with what is decided about it.
fn page() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(manifest("../../docs/shim-coverage.md")).expect("the page");
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, calls, decision, ..] = cells[..] else { continue };
        for name in calls.split('`').skip(1).step_by(2) {
            let before = names.insert(name.to_owned(), decision.to_owned());
            assert_eq!(before, None, "{name} is on the page twice");
        }
    }
    assert!(names.len() > 300, "the page's tables are read wrongly");
    names
}

fn exported_by_decision(decision: &str) -> bool {
    ["hooked", "handed over", "watched"].contains(&decision)
}

/// Does the name fit the pattern?
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skip| fits(rest, &name[skip..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => fits(pattern, name),
        ([b'[', pattern @ ..], [first, name @ ..]) => {
            let end = pattern.iter().position(|byte| *byte == b']').expect("a closed set");
            let set = &pattern[..end];
            let inside = if let [low, b'-', high] = set {
                (low..=high).contains(&first)
            } else {
                set.contains(first)
            };
            inside && fits(&pattern[end + 1..], name)
        }
        ([a, pattern @ ..], [b, name @ ..]) => a == b && fits(pattern, name),
        _ => false,
    }
}

fn about_something_else(name: &str) -> bool {
    let bare = name.trim_start_matches('_');
    let bare = bare.strip_suffix("_chk").unwrap_or(bare);
    NOT_ABOUT_DESCRIPTORS
        .iter()
        .flat_map(|(_, patterns)| patterns.split_whitespace())
        .any(|pattern| fits(pattern.as_bytes(), bare.as_bytes()))
}

#[test]
fn the_library_exports_what_the_page_says() {
    let page = page();
    // What `ginnel-go-loader` and `libginnel_sysv.so` call stands before no function of the C
    // library.
    let is_hook =
        |name: &String| !name.starts_with("ginnel_go_") && !name.starts_with("ginnel_shim_");
    let exported: BTreeSet<_> = exports(&shim()).into_keys().filter(is_hook).collect();
    let promised: BTreeSet<_> = page
        .iter()
        .filter(|(_, decision)| exported_by_decision(decision))
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(
        promised.difference(&exported).collect::<Vec<_>>(),
        [""; 0],
        "on the page as hooked, and not in the library"
    );
    assert_eq!(
        exported.difference(&promised).collect::<Vec<_>>(),
        [""; 0],
        "in the library, and not on the page as hooked"
    );
}

#[test]
fn the_page_has_every_function_about_descriptors() {
    let page = page();
    let missing: Vec<_> = exports(&c_library())
        .into_iter()
        .filter(|(name, version)| {
            let newer = version.is_some_and(|version| version > PAGE_VERSION);
            !page.contains_key(name)
                && !about_something_else(name)
                && (!newer || FAMILIES.iter().any(|family| name.contains(family)))
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        missing, [""; 0],
        "in the C library, and neither on the page nor about something else"
    );
}

#[test]
fn no_hooked_function_could_have_been_overlooked() {
    let hooked = page().into_iter().filter(|(_, decision)| exported_by_decision(decision));
    let hidden: Vec<_> =
        hooked.map(|(name, _)| name).filter(|name| about_something_else(name)).collect();
    assert_eq!(hidden, [""; 0], "the patterns of what is about something else are too wide");
}

#[test]
fn the_page_names_no_function_that_does_not_exist() {
    let library = exports(&c_library());
    let unknown: Vec<_> = page()
        .into_keys()
        .filter(|name| !library.contains_key(name) && !name.contains("io_uring_"))
        .collect();
    let newest = library.values().flatten().max().copied().expect("versions");
    if newest >= PAGE_VERSION {
        assert_eq!(unknown, [""; 0]);
    }
}
