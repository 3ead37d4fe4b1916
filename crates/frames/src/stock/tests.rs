//! The stock against a naive model, with every invariant checked after every step.

mod known;
mod model;
