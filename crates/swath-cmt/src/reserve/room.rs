//! The memory that may be taken beyond what a reserve keeps.

use core::ffi::CStr;

use crate::physical::file::{number_in, read};

/// Returns the bytes that the process may still take: what the kernel says is available, and, if the
/// process's memory is limited by a control group, what that leaves. 0 if it is not known.
pub(crate) fn available_bytes() -> u64 {
    let Some(machine) = number_in(c"/proc/meminfo", b"MemAvailable:") else { return 0 };
    let machine = machine.saturating_mul(1024);
    let mut groups = [0; 4096];
    let Some(groups) = read(c"/proc/self/cgroup", &mut groups) else { return machine };
    groups.split(|&byte| byte == b'\n').filter_map(left_of_group).fold(machine, u64::min)
}

/// Returns the bytes that nothing has, not even a file; 0 if it is not known.
pub(crate) fn free_bytes() -> u64 {
    number_in(c"/proc/meminfo", b"MemFree:").unwrap_or(0).saturating_mul(1024)
}

/// Returns the bytes that a line of `/proc/self/cgroup` and its ancestors leave, such as
/// `0::/user.slice/a` or `4:memory:/a`; `None` without a limit.
fn left_of_group(line: &[u8]) -> Option<u64> {
    let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
    let (controllers, mut group) = (fields.next()?, fields.next()?);
    let (root, limit, usage): (&[u8], &[u8], &[u8]) = match controllers {
        b"" => (b"/sys/fs/cgroup", b"memory.max", b"memory.current"),
        b"memory" => (b"/sys/fs/cgroup/memory", b"memory.limit_in_bytes", b"memory.usage_in_bytes"),
        _ => return None,
    };
    let mut least = None;
    loop {
        let number = |name: &[u8]| {
            let mut path = [0; 1024];
            let path = join(&mut path, &[root, group, b"/", name])?;
            number_in(path, b"")
        };
        if let (Some(limit), Some(usage)) = (number(limit), number(usage)) {
            let left = limit.saturating_sub(usage);
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        let parent = group.iter().rposition(|&byte| byte == b'/');
        match parent {
            Some(parent) if !group.is_empty() => group = &group[..parent],
            _ => return least,
        }
    }
}

/// Joins parts to a path that ends with a zero, if there is room.
fn join<'p>(path: &'p mut [u8], parts: &[&[u8]]) -> Option<&'p CStr> {
    let mut len = 0;
    for part in parts {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    *path.get_mut(len)? = 0;
    CStr::from_bytes_until_nul(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_a_limit_leaves_all() {
        assert_eq!(left_of_group(b"3:cpuset:/"), None);
        assert_eq!(left_of_group(b"0::/no/such/group/anywhere"), left_of_group(b"0::/"));
        assert_eq!(left_of_group(&[b'1'; 3000]), None);
        let mut long = *b"4:memory:/";
        assert!(join(&mut long, &[b"0123456789"]).is_none());
        assert!(available_bytes() > 0 && free_bytes() > 0);
    }
}
