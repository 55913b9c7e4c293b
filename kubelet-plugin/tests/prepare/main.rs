//! Prepare and Unprepare against a fake API server and fake cards, on a real file system.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

mod abandoned;
mod api;
mod basics;
mod changing;
mod crash;
mod crash_matrix;
mod device_status;
mod driver_files;
mod hung_card;
mod instances;
mod interleavings;
mod killed;
mod load;
mod metadata;
mod mig;
mod mig_crash;
mod other_installation;
mod recorded;
mod repair;
mod replaced;
mod share_crash;
mod storage;
mod waiting;
