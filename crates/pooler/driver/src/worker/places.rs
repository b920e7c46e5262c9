//! The places that a client takes at its listener, and with its database and its user. Calls no gate.

use crate::{mailbox::Admission, tenants::TenantIds};

pub(super) struct Places {
    /// What the gate of the listener said.
    admission: Admission,
    /// The database and the user with which the client has places.
    tenants: TenantIds,
    /// The listener and the tenants count the client among the clients that leave.
    leaving: bool,
    /// The client has logged in, and waits for a place with its database or its user.
    in_tenant_queue: bool,
    /// The client has not logged in, and another client may get its place.
    in_lobby: bool,
}

impl Places {
    pub(super) fn new(admission: Admission) -> Self {
        let in_lobby = admission == Admission::Admitted;
        Self { admission, tenants: [None; 2], leaving: false, in_tenant_queue: false, in_lobby }
    }

    pub(super) fn admission(&self) -> Admission {
        self.admission
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.admission == Admission::Admitted
    }

    /// Another client has got the place at the listener.
    pub(super) fn displace(&mut self) {
        self.admission = Admission::Displaced;
    }

    /// The client gives its place at the listener back, and stays only to be told so. Returns whether it was counted
    /// among the clients that leave.
    pub(super) fn become_surplus(&mut self) -> bool {
        self.admission = Admission::Surplus;
        std::mem::take(&mut self.leaving)
    }

    /// The client, which was let in only to be told that there is no room, has got a kept place.
    pub(super) fn take_kept(&mut self) {
        self.admission = Admission::Kept;
    }

    pub(super) fn tenants(&self) -> TenantIds {
        self.tenants
    }

    pub(super) fn set_tenants(&mut self, tenants: TenantIds) {
        self.tenants = tenants;
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The client counts among the clients that leave. False if it does already.
    pub(super) fn begin_leaving(&mut self) -> bool {
        !std::mem::replace(&mut self.leaving, true)
    }

    pub(super) fn is_in_tenant_queue(&self) -> bool {
        self.in_tenant_queue
    }

    pub(super) fn set_in_tenant_queue(&mut self, in_tenant_queue: bool) {
        self.in_tenant_queue = in_tenant_queue;
    }

    pub(super) fn is_in_lobby(&self) -> bool {
        self.in_lobby
    }

    /// No other client can get the place any more. False if that was so before.
    pub(super) fn leave_lobby(&mut self) -> bool {
        std::mem::take(&mut self.in_lobby)
    }
}
