//! A check whether another process of this machine still runs.

/// Returns whether process `pid` of this machine still runs. A process that ended does not run, even if its
/// parent has not yet waited for it. A reused id looks alive.
///
/// ```
/// assert!(dm_sync::process_alive(std::process::id()));
/// ```
pub fn process_alive(pid: u32) -> bool {
    if cfg!(miri) || pid == std::process::id() {
        return true;
    }
    // SAFETY: signal 0 sends nothing; the id fits, line locks hold 22 bits.
    let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
    if answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return false;
    }
    // "pid (name) STATE …": a zombie still answers signals.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}
