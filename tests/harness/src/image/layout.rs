//! Writes images as an OCI image layout, into a directory or a tar archive. Includes the additions of `docker save`, so
//! containerd, Podman, Docker, skopeo and crane can all read the result.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use flate2::{Compression, GzBuilder};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Architecture, Image, ImageError, contents::append};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A written image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Its full reference.
    pub reference: String,
    /// Digest of its manifest, the image's identity in a registry.
    pub digest: String,
    /// Name of its architecture.
    pub architecture: String,
    /// Size of its layer in bytes, as stored in a registry.
    pub bytes: usize,
}

/// Files of a layout by name.
#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Image {
    /// Writes only this image, like [`write_archive`].
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ImageError> {
        write_archive(std::slice::from_ref(self), path).map(drop)
    }
}

/// Writes images into one tar archive.
///
/// # Errors
/// The archive cannot be written.
pub fn write_archive(images: &[Image], path: &Path) -> Result<Vec<Written>, ImageError> {
    let failed = |source| ImageError::Write { path: path.to_owned(), source };
    let (files, written) = layout(images).map_err(failed)?;
    let mut archive = tar::Builder::new(File::create(path).map_err(failed)?);
    for (name, bytes) in &files.0 {
        append(&mut archive, name, 0o644, bytes).map_err(failed)?;
    }
    archive.into_inner().and_then(|file| file.sync_data()).map_err(failed)?;
    Ok(written)
}

/// Writes images into a directory, created if needed; an existing layout is replaced.
///
/// # Errors
/// The directory cannot be written, or has other files in it.
pub fn write_layout(images: &[Image], directory: &Path) -> Result<Vec<Written>, ImageError> {
    let failed = |source| ImageError::Write { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    if directory.join("oci-layout").exists() {
        match fs::remove_dir_all(directory.join("blobs")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    } else if fs::read_dir(directory).map_err(failed)?.next().is_some() {
        return Err(ImageError::Occupied(directory.to_owned()));
    }
    let (files, written) = layout(images).map_err(failed)?;
    fs::create_dir_all(directory.join("blobs/sha256")).map_err(failed)?;
    for (name, bytes) in &files.0 {
        fs::write(directory.join(name), bytes).map_err(failed)?;
    }
    Ok(written)
}

fn layout(images: &[Image]) -> io::Result<(Files, Vec<Written>)> {
    let mut files = Files::default();
    let (mut index, mut docker, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for image in images {
        let architecture =
            image.architecture.or_else(Architecture::native).map_or("unknown", Architecture::name);
        let tar = image.layer()?;
        let diff = sha256(&tar);
        let (layer, suffix) = if image.compressed { (gzip(&tar)?, "+gzip") } else { (tar, "") };
        let bytes = layer.len();
        let layer = files.blob(&format!("{LAYER}{suffix}"), layer);
        let configuration = json!({
            "architecture": architecture,
            "os": "linux",
            "config": { "Env": image.environment, "Entrypoint": image.entrypoint, "Labels": image.labels },
            "rootfs": { "type": "layers", "diff_ids": [diff] },
        });
        let configuration = files.blob(CONFIGURATION, configuration.to_string().into_bytes());
        docker.push(json!({
            "Config": place(&configuration),
            "RepoTags": [image.reference()],
            "Layers": [place(&layer)],
        }));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration,
            "layers": [layer],
        });
        let mut manifest = files.blob(MANIFEST, manifest.to_string().into_bytes());
        all.push(Written {
            reference: image.reference().to_owned(),
            digest: manifest["digest"].as_str().unwrap_or_default().to_owned(),
            architecture: architecture.to_owned(),
            bytes,
        });
        manifest["platform"] = json!({ "architecture": architecture, "os": "linux" });
        manifest["annotations"] = json!({
            // containerd and the kubelet use the full name of an image, skopeo and Podman the name as written.
            "io.containerd.image.name": with_registry(image.reference()),
            "org.opencontainers.image.ref.name": image.reference(),
        });
        index.push(manifest);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": index });
    files.0.insert("index.json".to_owned(), index.to_string().into_bytes());
    files.0.insert("manifest.json".to_owned(), Value::from(docker).to_string().into_bytes());
    files
        .0
        .insert("oci-layout".to_owned(), json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes());
    Ok((files, all))
}

impl Files {
    /// Adds content under its digest and returns the OCI descriptor.
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = sha256(&bytes);
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
        self.0.insert(place(&descriptor), bytes);
        descriptor
    }
}

/// Path in a layout of a descriptor's content.
fn place(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap_or_default().replace(':', "/"))
}

/// The full form of a reference, as completed by container engines: with `docker.io/` if no registry is named.
fn with_registry(reference: &str) -> String {
    match reference.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => reference.to_owned(),
        Some(_) => format!("docker.io/{reference}"),
        None => format!("docker.io/library/{reference}"),
    }
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    // No name and no time in its header, to be reproducible.
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn sha256(bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Read as _};

    use super::*;

    fn example() -> Image {
        Image::new("example/a:1")
            .bytes("/usr/bin/a", "program", 0o755)
            .bytes("usr/bin/b", "other", 0o755)
            .link("/bin/a", "../usr/bin/a")
            .entrypoint(["/usr/bin/a"])
            .label("org.opencontainers.image.title", "a")
    }

    /// A descriptor's content, checked against its digest and size.
    fn content(directory: &Path, descriptor: &Value) -> Vec<u8> {
        let bytes = fs::read(directory.join(place(descriptor))).unwrap();
        assert_eq!(descriptor["digest"], sha256(&bytes));
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_descriptor_leads_to_what_it_says_and_every_folder_is_there_once() {
        let directory = tempfile::tempdir().unwrap();
        for image in [example(), example().compressed()] {
            let written = write_layout(std::slice::from_ref(&image), directory.path()).unwrap();
            let index: Value =
                serde_json::from_slice(&fs::read(directory.path().join("index.json")).unwrap()).unwrap();
            let descriptor = &index["manifests"][0];
            assert_eq!(descriptor["digest"], written[0].digest);
            assert_eq!(descriptor["annotations"]["io.containerd.image.name"], "docker.io/example/a:1");
            let manifest: Value = serde_json::from_slice(&content(directory.path(), descriptor)).unwrap();
            let configuration: Value =
                serde_json::from_slice(&content(directory.path(), &manifest["config"])).unwrap();
            assert_eq!(configuration["config"]["Entrypoint"][0], "/usr/bin/a");
            assert_eq!(configuration["config"]["Labels"]["org.opencontainers.image.title"], "a");

            let mut layer = content(directory.path(), &manifest["layers"][0]);
            if image.compressed {
                let mut tar = Vec::new();
                flate2::read::GzDecoder::new(layer.as_slice()).read_to_end(&mut tar).unwrap();
                layer = tar;
            }
            assert_eq!(configuration["rootfs"]["diff_ids"][0], sha256(&layer));
            let mut seen = BTreeSet::new();
            for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
                assert!(seen.insert(entry.unwrap().path().unwrap().display().to_string()));
            }
            for expected in ["usr/", "usr/bin/", "usr/bin/a", "usr/bin/b", "bin/", "bin/a", "tmp/", "proc/"] {
                assert!(seen.contains(expected), "{expected} is not in {seen:?}");
            }
            // Nothing of the first image is left: there are the layer, the configuration, the manifest.
            assert_eq!(fs::read_dir(directory.path().join("blobs/sha256")).unwrap().count(), 3);
        }
    }

    #[test]
    fn the_same_images_make_the_same_archive() {
        let directory = tempfile::tempdir().unwrap();
        let archives = ["1.tar", "2.tar"].map(|name| {
            let path = directory.path().join(name);
            write_archive(&[example(), example().compressed()], &path).unwrap();
            fs::read(path).unwrap()
        });
        assert!(archives[0] == archives[1]);
    }

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("mine"), "").unwrap();
        assert!(matches!(write_layout(&[example()], directory.path()), Err(ImageError::Occupied(_))));
    }

    #[test]
    fn references_are_completed_as_container_engines_do() {
        assert_eq!(with_registry("a:1"), "docker.io/library/a:1");
        assert_eq!(with_registry("tessera/a:1"), "docker.io/tessera/a:1");
        assert_eq!(with_registry("example.com/a:1"), "example.com/a:1");
        assert_eq!(with_registry("localhost/a:1"), "localhost/a:1");
    }
}
