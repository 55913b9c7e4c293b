//! `cargo xtask image`: the chart's images, without a container engine.

mod programs;
mod toolchain;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use tessera_harness::{
    Architecture, Image, Written, gpu_emulator_image,
    progress::Progress,
    tools::{Module, Tools},
    workspace, write_archive, write_layout,
};

use self::programs::Program;

/// Arguments of `cargo xtask image`.
#[derive(Args)]
#[command(
    after_help = "Writes an OCI image layout with all images in it: a directory, or with a name that ends in .tar an archive. An image
has the program, the loader and the libraries it is linked to, and nothing else (gpu-emulator: its library and stub tools, too).
Equal programs make equal images.

For arm64 on amd64, Rust's target and a C compiler that links for it are needed; the command says which is missing.

Examples:
  cargo xtask image                                              target/images.tar
  cargo xtask image kubelet-plugin --output plugin.tar
  cargo xtask image --repository registry.example.com/tessera --tag 0.1.0 --output images
  cargo xtask image --arch arm64 --output images-arm64
  cargo xtask image --profile dev                                for trying: sooner done

Then, into a registry:
  skopeo copy oci:images:registry.example.com/tessera/kubelet-plugin:0.1.0 \\
    docker://registry.example.com/tessera/kubelet-plugin:0.1.0
  cargo xtask image kubelet-plugin --output plugin.tar && \\
    crane push plugin.tar registry.example.com/tessera/kubelet-plugin:0.1.0
Or onto a node without one:
  ctr --namespace k8s.io images import images.tar
  docker load --input images.tar                                 # Docker, Podman, kind load image-archive

The chart takes them with --set image.repository=registry.example.com/tessera,image.tag=0.1.0"
)]
pub struct ImageArguments {
    /// The images to make. [default: all]
    #[arg(value_enum, value_name = "PROGRAM")]
    programs: Vec<Program>,
    /// Output: a directory, or an archive if the name ends in .tar. [default: images.tar in the target folder]
    #[arg(long, value_name = "DIR|FILE.tar")]
    output: Option<PathBuf>,
    /// Prefix of the images' names, before the program: the chart's image.repository.
    #[arg(long, default_value = "tessera", value_name = "NAME")]
    repository: String,
    /// Tag of the images: the chart's image.tag.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// Architecture to build for. [default: this machine's]
    #[arg(long, value_parser = architecture)]
    arch: Option<Architecture>,
    /// Cargo's profile: `dev` is built in a fraction of the time, for trying; its programs are larger and slower.
    #[arg(long, default_value = "node", value_name = "NAME")]
    profile: String,
    /// `text` for people; with `json` standard output is one line of JSON with path and digests.
    #[arg(long, short = 'o', value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

fn architecture(name: &str) -> Result<Architecture, String> {
    let known = || Architecture::ALL.map(Architecture::name).join(" or ");
    Architecture::ALL
        .into_iter()
        .find(|architecture| architecture.name() == name)
        .ok_or_else(|| format!("images are made for {}", known()))
}

/// Builds the programs and writes their images.
///
/// # Errors
/// When a program cannot be built or an image cannot be written.
pub fn run(arguments: &ImageArguments) -> Result<ExitCode> {
    let started = Instant::now();
    let output = match &arguments.output {
        Some(output) if matches!(output.to_str(), Some("json" | "text")) => {
            bail!("--output is the place of the images; did you mean --format {}?", output.display());
        }
        Some(output) => output.clone(),
        None => workspace::target()?.join("images.tar"),
    };
    let all = if arguments.programs.is_empty() { Program::value_variants() } else { &arguments.programs };
    let architecture = arguments
        .arch
        .or_else(Architecture::native)
        .context("this machine is neither amd64 nor arm64: name one with --arch")?;
    let folder = toolchain::build(all, architecture, &arguments.profile)?;
    let images = all
        .iter()
        .map(|program| image(*program, &folder, architecture, &arguments.repository, &arguments.tag))
        .collect::<Result<Vec<Image>>>()?;
    eprintln!("writing {}", output.display());
    let written = if output.extension().is_some_and(|extension| extension == "tar") {
        write_archive(&images, &output)?
    } else {
        write_layout(&images, &output)?
    };
    print(&written, &output, arguments.format);
    eprintln!("done in {:.0} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn image(
    program: Program,
    folder: &Path,
    architecture: Architecture,
    repository: &str,
    tag: &str,
) -> Result<Image> {
    let name = program.name();
    let reference = format!("{repository}/{name}:{tag}");
    let image = match program {
        Program::GpuEmulator => {
            let commands = of_this_machine(architecture, Module::Testimage, "testimage")?;
            gpu_emulator_image(&reference, folder, commands.as_deref())?
        }
        Program::KubeletPlugin => {
            let image = Image::from_binary(reference, &folder.join(name))?;
            match of_this_machine(architecture, Module::NvidiaContainerToolkit, "nvidia-cdi-hook")? {
                Some(hook) => image.binary("/usr/bin/nvidia-cdi-hook", &hook)?,
                None => image,
            }
        }
        _ => Image::from_binary(reference, &folder.join(name))?,
    };
    let image = image
        .label("org.opencontainers.image.title", name)
        .label("org.opencontainers.image.description", program.description())
        .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
        .label("org.opencontainers.image.licenses", "Apache-2.0");
    Ok(image.compressed())
}

/// A program in Go. They are built for this machine only. For others, the image of the plugin does without NVIDIA's hook, so
/// nodes need nvidia-ctk for an ld.so.cache in containers, and the image of the emulator without the demo's commands.
fn of_this_machine(architecture: Architecture, module: Module, program: &str) -> Result<Option<PathBuf>> {
    if Architecture::native() != Some(architecture) {
        return Ok(None);
    }
    let tools = Tools::build(&[module], &Progress::terminal())?;
    Ok(Some(tools.path(module, program)?))
}

fn print(written: &[Written], output: &Path, format: Format) {
    match format {
        Format::Json => println!("{}", json!({ "path": output, "images": written })),
        Format::Text => {
            for image in written {
                let mib = image.bytes as f64 / f64::from(1 << 20);
                println!("{}  {}  {mib:.1} MiB  {}", image.reference, image.architecture, image.digest);
            }
            println!("in {}", output.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every image named by the chart is made under the same name, with the chart's tag.
    #[test]
    fn the_chart_names_what_is_made() {
        let chart = workspace::root().join("charts/tessera");
        let read = |file: &str| std::fs::read_to_string(chart.join(file)).unwrap();
        assert!(read("values.yaml").contains("\nimage:\n"));
        assert!(read("values.yaml").contains("  repository: tessera\n"));
        assert!(read("Chart.yaml").contains(&format!("appVersion: {}\n", env!("CARGO_PKG_VERSION"))));
        let mut named = 0;
        for file in std::fs::read_dir(chart.join("templates")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for (_, rest) in text.match_indices("include \"tessera.image\"").map(|(at, _)| text.split_at(at))
            {
                let program = rest.split('"').nth(3).unwrap();
                assert!(Program::from_str(program, false).is_ok(), "no image {program} is made");
                named += 1;
            }
        }
        assert!(named > 0, "the chart's templates name no image");
    }
}
