//! Whether all sums of a budget are right: for tests and the simulator, after each step. It looks, and changes nothing.

use super::Budget;

impl Budget {
    /// Whether all sums are right: O(members).
    ///
    /// # Panics
    /// If anything is wrong.
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
        assert_eq!(self.present().map(|(_, m)| m.wanting).sum::<u32>(), self.wanting, "the sum of wishes is wrong");
        for (id, member) in self.present() {
            assert!(member.reclaims <= member.used, "{id:?} is asked to give up more than it has");
            assert!(member.pressing <= member.wanting, "{id:?} presses for more than it wishes for");
            assert!(member.wanting == 0 || self.kept || !self.fits(member), "{id:?} wishes for what is there");
        }
    }
}
