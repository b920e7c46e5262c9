//! A quota that users share. A user may have as much as is left for others then, so that a user who comes late always
//! finds some.

use std::{collections::HashMap, sync::Arc};

/// Whether a user that has `own` of the `all` that is taken may take `amount` more.
pub fn fits_quota(own: usize, all: usize, amount: usize, max: usize) -> bool {
    own + amount + all + amount <= max
}

#[derive(Default)]
pub struct Quota {
    own: HashMap<Arc<str>, usize>,
    all: usize,
}

impl Quota {
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.all
    }

    /// Takes `amount` for a user. False if that would exceed the user's share of `max`.
    pub fn take(&mut self, user: &Arc<str>, amount: usize, max: usize) -> bool {
        if amount == 0 {
            return true;
        }
        let own = self.own.get(user).copied().unwrap_or(0);
        let fits = fits_quota(own, self.all, amount, max);
        if fits {
            self.take_regardless(user, amount);
        }
        fits
    }

    /// Takes `amount` for a user even beyond the share.
    pub fn take_regardless(&mut self, user: &Arc<str>, amount: usize) {
        *self.own.entry(Arc::clone(user)).or_default() += amount;
        self.all += amount;
    }

    pub fn give_back(&mut self, user: &Arc<str>, amount: usize) {
        self.all -= amount;
        if let Some(own) = self.own.get_mut(user) {
            *own -= amount;
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
    fn a_user_who_comes_later_gets_a_share_whatever_others_have() {
        let (mut quota, [one, other]) = (Quota::default(), ["u", "v"].map(Arc::from));
        let takes = |quota: &mut Quota, user| (0..100).filter(|_| quota.take(user, 1, 16)).count();
        assert_eq!([takes(&mut quota, &one), takes(&mut quota, &other)], [8, 4]);
        assert!(!quota.take(&one, 1, 16) && quota.take(&one, 0, 16), "nothing fits always");
        quota.give_back(&one, 8);
        assert_eq!((quota.taken(), takes(&mut quota, &one)), (4, 6));
        quota.give_back(&one, 6);
        quota.give_back(&other, 4);
        assert!(quota.taken() == 0 && quota.own.is_empty());
    }
}
