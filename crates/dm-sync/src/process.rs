//! A check whether another process of this machine still runs.

/// Returns whether process `pid` of this machine still runs. A process that has ended does not run, even if
/// its parent has not yet waited for it. If the id was reused, this returns `true`. Under Miri, it always does.
///
/// ```
/// assert!(dm_sync::process_alive(std::process::id()));
/// ```
pub fn process_alive(pid: u32) -> bool {
    if cfg!(miri) || pid == std::process::id() {
        return true;
    }
    // SAFETY: signal 0 sends no signal, whatever the id is.
    let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
    if answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return false;
    }
    // The file begins with "pid (name) STATE". A zombie must be detected here, because signals can still be
    // sent to it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}
