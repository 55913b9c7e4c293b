//! The sockets the kubelet talks to: registration and DRA.
