//! A controller process.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A running controller; it is killed when dropped.
pub struct Instance {
    child: Child,
}

impl Instance {
    /// Starts one.
    pub fn start(kubeconfig: &Path, name: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_controller"))
            .args(["--http-address", "127.0.0.1:0", "--fleet-address", "127.0.0.1:0"])
            .args(["--namespace", "default", "--pod-name", name])
            // Slices of a test are not given to kube-scheduler before.
            .args(["--handover", "1"])
            // Five minutes would be long for a test.
            .args(["--heal-after", "3"])
            .args(["--quota-grace", "1"])
            .args(["--gather-after", "0"])
            .arg("--convert-extended-resources")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Instance { child }
    }

    /// Ends it in order.
    pub fn terminate(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "the controller ended with an error");
    }

    /// Ends it as a power failure would.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
