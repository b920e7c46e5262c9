//! Checks the whole state of a budget, for tests and the simulator, after each step.

use super::Budget;

impl Budget {
    /// Checks the whole state: O(members).
    ///
    /// # Panics
    /// If the state is inconsistent.
    pub fn check_invariants(&self) {
        for (at, cap) in (0..).zip(&self.caps) {
            let under = || self.present().map(|(_, m)| m).filter(|m| m.caps().contains(&at));
            assert_eq!(under().count(), cap.members as usize, "the number of members under cap {at} is wrong");
            assert_eq!(under().map(|m| m.used).sum::<u32>(), cap.used, "the sum of permits under cap {at} is wrong");
            assert_eq!(under().map(|m| m.reclaims).sum::<u32>(), cap.reclaims, "the reclaims under cap {at} are wrong");
            assert!(cap.used <= cap.ceiling, "{} permits under cap {at}, of at most {}", cap.used, cap.ceiling);
        }
        assert_eq!(self.present().map(|(_, m)| m.pending).sum::<u32>(), self.pending, "the sum of requests is wrong");
        for (id, member) in self.present() {
            assert!(member.reclaims <= member.used, "{id:?} has fewer permits than are reclaimed");
            assert!(member.congested <= member.pending, "{id:?} reports congestion for more requests than wait");
            assert!(
                member.pending == 0 || self.has_promises || !self.fits(member),
                "{id:?} waits for a permit that is free"
            );
        }
    }
}
