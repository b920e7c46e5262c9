//! What a worker counts for the metrics. Decides nothing.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    client_state::{STATES, State},
    process::Board,
};

pub(super) struct Counters {
    /// The clients in each state, by listener.
    clients: Vec<[u64; STATES]>,
    transactions: u64,
    moves: u64,
}

impl Counters {
    pub(super) fn new(listeners: usize) -> Self {
        Self { clients: vec![[0; STATES]; listeners], transactions: 0, moves: 0 }
    }

    pub(super) fn client_came(&mut self, listener: u16, state: State) {
        self.clients[usize::from(listener)][state as usize] += 1;
    }

    pub(super) fn client_left(&mut self, listener: u16, state: State) {
        self.clients[usize::from(listener)][state as usize] -= 1;
    }

    pub(super) fn add_transactions(&mut self, count: u64) {
        self.transactions += count;
    }

    pub(super) fn server_moved(&mut self) {
        self.moves += 1;
    }

    pub(super) fn publish(&self, board: &Board) {
        board.transactions.store(self.transactions, Relaxed);
        board.moves.store(self.moves, Relaxed);
        for (listener, states) in self.clients.iter().enumerate() {
            for (published, now) in board.states[listener].iter().zip(states) {
                published.store(*now, Relaxed);
            }
        }
    }
}
