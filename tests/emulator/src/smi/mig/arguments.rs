//! Arguments of `nvidia-smi mig`.

/// Shows and changes partitions of the cards whose MIG mode is on.
#[derive(clap::Args)]
#[group(id = "action", required = true, multiple = true)]
pub(in super::super) struct Mig {
    /// Only these cards: index, UUID or PCI bus id, with commas between.
    #[arg(short, long, value_name = "CARDS", group = "which")]
    pub id: Option<String>,
    /// Only these GPU instances (-gi).
    #[arg(long, value_name = "IDS", value_delimiter = ',', group = "which")]
    pub gpu_instance_id: Vec<u32>,
    /// Only these compute instances (-ci).
    #[arg(long, value_name = "IDS", value_delimiter = ',', group = "which")]
    pub compute_instance_id: Vec<u32>,
    /// Lists the kinds of GPU instances, and how many more can be made (-lgip).
    #[arg(long, group = "action")]
    pub list_gpu_instance_profiles: bool,
    /// Lists where GPU instances can lie (-lgipp).
    #[arg(long, group = "action")]
    pub list_gpu_instance_possible_placements: bool,
    /// Lists GPU instances (-lgi).
    #[arg(long, group = "action")]
    pub list_gpu_instances: bool,
    /// Makes GPU instances (-cgi): names or ids of profiles with commas between, each with `:START` where that matters.
    #[arg(long, value_name = "PROFILES", group = "action")]
    pub create_gpu_instance: Option<String>,
    /// With -cgi: also a compute instance of full width in each (-C).
    #[arg(short = 'C', long, requires = "create_gpu_instance")]
    pub default_compute_instance: bool,
    /// Destroys GPU instances (-dgi).
    #[arg(long, group = "action")]
    pub destroy_gpu_instance: bool,
    /// Lists the kinds of compute instances in GPU instances (-lcip).
    #[arg(long, group = "action")]
    pub list_compute_instance_profiles: bool,
    /// Lists compute instances (-lci).
    #[arg(long, group = "action")]
    pub list_compute_instances: bool,
    /// Makes compute instances (-cci): names or ids of profiles with commas between; of full width where none is given.
    #[arg(long, value_name = "PROFILES", num_args = 0..=1, default_missing_value = "", group = "action")]
    pub create_compute_instance: Option<String>,
    /// Destroys compute instances (-dci).
    #[arg(long, group = "action")]
    pub destroy_compute_instance: bool,
}

/// Options of the real tool with one dash and several letters, and their long names.
const SHORT: [(&str, &str); 12] = [
    ("-mig", "--multi-instance-gpu"),
    ("-gi", "--gpu-instance-id"),
    ("-ci", "--compute-instance-id"),
    ("-lgip", "--list-gpu-instance-profiles"),
    ("-lgipp", "--list-gpu-instance-possible-placements"),
    ("-lgi", "--list-gpu-instances"),
    ("-cgi", "--create-gpu-instance"),
    ("-dgi", "--destroy-gpu-instance"),
    ("-lcip", "--list-compute-instance-profiles"),
    ("-lci", "--list-compute-instances"),
    ("-cci", "--create-compute-instance"),
    ("-dci", "--destroy-compute-instance"),
];

/// Replaces options with one dash by their long names, because the parser supports only these.
pub(in super::super) fn spell_out(argument: String) -> String {
    let (name, value) =
        argument.split_once('=').map_or((argument.as_str(), None), |(name, value)| (name, Some(value)));
    match (SHORT.iter().find(|(short, _)| *short == name), value) {
        (Some((_, long)), None) => (*long).to_owned(),
        (Some((_, long)), Some(value)) => format!("{long}={value}"),
        (None, _) => argument,
    }
}
