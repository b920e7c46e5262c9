//! Checks the whole state of a budget, for tests and the simulator, after each step.

use super::Budget;

impl Budget {
    /// Checks the whole state: O(members).
    ///
    /// # Panics
    /// If the state is inconsistent.
    pub fn check_invariants(&self) {
        for (at, scope) in (0..).zip(&self.scopes) {
            let under = || self.present().map(|(_, m)| m).filter(|m| m.scopes().contains(&at));
            assert_eq!(under().count(), scope.members as usize, "the number of members under cap {at} is wrong");
            assert_eq!(under().map(|m| m.used).sum::<u32>(), scope.used, "the sum of permits under cap {at} is wrong");
            assert_eq!(
                under().map(|m| m.reclaims).sum::<u32>(),
                scope.reclaims,
                "the reclaims under cap {at} are wrong"
            );
            assert!(scope.used <= scope.ceiling, "{} permits under cap {at}, of at most {}", scope.used, scope.ceiling);
        }
        assert_eq!(self.present().map(|(_, m)| m.wanting).sum::<u32>(), self.wanting, "the sum of requests is wrong");
        for (id, member) in self.present() {
            assert!(member.reclaims <= member.used, "{id:?} has fewer permits than are reclaimed");
            assert!(member.congested <= member.wanting, "{id:?} reports congestion for more requests than wait");
            assert!(
                member.wanting == 0 || self.holds_back || !self.fits(member),
                "{id:?} waits for a permit that is free"
            );
        }
    }
}
