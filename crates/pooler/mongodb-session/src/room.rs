//! Room that all users share: how much of it each has. Somebody who takes more leaves as much to others as he has
//! himself, so that one who comes later finds room whatever the others do. Knows not what it is room for.

use std::{collections::HashMap, sync::Arc};

/// Whether somebody who has `own` of `all` that is taken may have so many `more`.
pub fn has_room(own: usize, all: usize, more: usize, most: usize) -> bool {
    own + more + all + more <= most
}

#[derive(Default)]
pub struct Room {
    own: HashMap<Arc<str>, usize>,
    all: usize,
}

impl Room {
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.all
    }

    /// A user takes so much more. False if there is no room for him; `most`: how much there may be in all.
    pub fn take(&mut self, user: &Arc<str>, more: usize, most: usize) -> bool {
        if more == 0 {
            return true;
        }
        let own = self.own.get(user).copied().unwrap_or(0);
        let fits = has_room(own, self.all, more, most);
        if fits {
            self.note(user, more);
        }
        fits
    }

    /// A user has taken so much more, whether or not there was room.
    pub fn note(&mut self, user: &Arc<str>, more: usize) {
        *self.own.entry(Arc::clone(user)).or_default() += more;
        self.all += more;
    }

    /// A user gives so much back.
    pub fn give_back(&mut self, user: &Arc<str>, count: usize) {
        self.all -= count;
        if let Some(own) = self.own.get_mut(user) {
            *own -= count;
            if *own == 0 {
                self.own.remove(user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_later_finds_room_whatever_the_others_do() {
        let (mut room, [one, other]) = (Room::default(), ["u", "v"].map(Arc::from));
        let takes = |room: &mut Room, user| (0..100).filter(|_| room.take(user, 1, 16)).count();
        assert_eq!([takes(&mut room, &one), takes(&mut room, &other)], [8, 4]);
        assert!(!room.take(&one, 1, 16) && room.take(&one, 0, 16), "nothing fits always");
        room.give_back(&one, 8);
        assert_eq!((room.taken(), takes(&mut room, &one)), (4, 6));
        room.give_back(&one, 6);
        room.give_back(&other, 4);
        assert!(room.taken() == 0 && room.own.is_empty());
    }
}
