//! The publisher against a real API server, through a proxy where the server has to misbehave.

mod answers;
mod features;
mod instances;
mod proxy;
mod publishing;
mod rivals;
mod support;
