//! What a server owes to Poolhouse itself before clients may use it: the reply to a ping or to a cleanup task.

use crate::cleanup_tasks::AssignedTask;

pub struct OwedReply {
    awaited: i32,
    /// An unacknowledged request of a client that has left.
    unwanted: Option<i32>,
    task: Option<Box<AssignedTask>>,
    /// How many cleanup tasks the server has been given in a row.
    tasks: u32,
}

impl OwedReply {
    pub fn of_ping(id: i32) -> Self {
        Self { awaited: id, unwanted: None, task: None, tasks: 0 }
    }

    /// A ping behind the unacknowledged request of a client that has left.
    pub fn of_ping_behind(id: i32, request: i32) -> Self {
        Self { unwanted: Some(request), ..Self::of_ping(id) }
    }

    /// A cleanup task, the `tasks`-th in a row.
    pub fn of_task(id: i32, task: AssignedTask, tasks: u32) -> Self {
        Self { awaited: id, unwanted: None, task: Some(Box::new(task)), tasks }
    }

    pub fn take_task(&mut self) -> Option<AssignedTask> {
        Some(*self.task.take()?)
    }

    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    pub fn awaits(&self, id: i32) -> bool {
        self.awaited == id
    }

    /// Some servers reply to unacknowledged requests.
    pub fn ignores(&self, id: i32) -> bool {
        self.unwanted == Some(id)
    }
}
