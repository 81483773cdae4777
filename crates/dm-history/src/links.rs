//! A list over `0..n`. Removed elements can be put back in the reverse order of their removal (Knuth's dancing links).

/// A doubly linked list whose links are indices. Position `n` is the sentinel.
#[derive(Debug)]
pub(crate) struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl Links {
    /// Makes a list of the elements of `order`, which must be below `n`, in this order.
    pub(crate) fn new(n: u32, order: impl Iterator<Item = u32>) -> Self {
        let mut links = Self {
            next: vec![n; n as usize + 1],
            prev: vec![n; n as usize + 1],
        };
        let mut last = n;
        for at in order {
            links.next[last as usize] = at;
            links.prev[at as usize] = last;
            last = at;
        }
        links.next[last as usize] = n;
        links.prev[n as usize] = last;
        links
    }

    /// Returns the first element, or the sentinel.
    pub(crate) fn first(&self) -> u32 {
        self.next[self.next.len() - 1]
    }

    /// Returns the element after `at`, or the sentinel. `at` may be the element that was removed last.
    pub(crate) fn after(&self, at: u32) -> u32 {
        self.next[at as usize]
    }

    /// Removes `at`.
    pub(crate) fn take(&mut self, at: u32) {
        let (before, after) = (self.prev[at as usize], self.next[at as usize]);
        self.next[before as usize] = after;
        self.prev[after as usize] = before;
    }

    /// Puts `at` back. It must be the element that was removed last and not put back yet.
    pub(crate) fn put_back(&mut self, at: u32) {
        let (before, after) = (self.prev[at as usize], self.next[at as usize]);
        self.next[before as usize] = at;
        self.prev[after as usize] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(links: &Links, end: u32) -> Vec<u32> {
        std::iter::successors(Some(links.first()), |&at| Some(links.after(at)))
            .take_while(|&at| at != end)
            .collect()
    }

    #[test]
    fn elements_are_put_back_in_reverse_order() {
        let mut links = Links::new(5, [3, 0, 4].into_iter());
        assert_eq!(listed(&links, 5), [3, 0, 4]);
        links.take(0);
        links.take(3);
        assert_eq!(listed(&links, 5), [4]);
        links.put_back(3);
        links.put_back(0);
        assert_eq!(listed(&links, 5), [3, 0, 4]);
    }
}
