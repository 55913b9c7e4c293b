//! Whose rows are listed.

use clap::Args;

/// One namespace, or all.
#[derive(Debug, Args)]
pub struct NamespaceArguments {
    /// Only this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// All namespaces, as without -n
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl NamespaceArguments {
    /// The only namespace; `None`: all. As with kubectl, -A wins.
    pub fn only(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|_| !self.all_namespaces)
    }
}
