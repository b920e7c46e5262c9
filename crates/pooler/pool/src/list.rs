//! Doubly linked lists whose links are in the entries of a slab. An entry is inserted and removed anywhere without a
//! search or an allocation. The lists know neither what the entries are nor which type owns the slab.

/// "No entry", as an index.
pub(crate) const NONE: u32 = u32::MAX;

/// An entry's place in a list. It has no meaning while the entry is in none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { prev: NONE, next: NONE };
}

/// Both ends of a list. The caller passes a function that returns an entry's links in this list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    #[inline]
    pub(crate) fn push_front<T>(&mut self, slab: &mut [T], at: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(&mut slab[at as usize]) = Links { prev: NONE, next: self.head };
        match self.head {
            NONE => self.tail = at,
            head => links(&mut slab[head as usize]).prev = at,
        }
        self.head = at;
    }

    #[inline]
    pub(crate) fn push_back<T>(&mut self, slab: &mut [T], at: u32, links: impl Fn(&mut T) -> &mut Links) {
        *links(&mut slab[at as usize]) = Links { prev: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = at,
            tail => links(&mut slab[tail as usize]).next = at,
        }
        self.tail = at;
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, slab: &mut [T], at: u32, links: impl Fn(&mut T) -> &mut Links) {
        let Links { prev, next } = *links(&mut slab[at as usize]);
        match prev {
            NONE => self.head = next,
            prev => links(&mut slab[prev as usize]).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => links(&mut slab[next as usize]).prev = prev,
        }
    }
}
