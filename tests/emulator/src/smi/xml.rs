//! `nvidia-smi -q -x`: elements and their order as in captures of driver 580; unknown elements are left out.

use super::card::{Reading, mib, mode};
use super::library::Library;
use super::table::cuda_text;
use crate::hardware::board::{Architecture, Brand};
use crate::nvml::ffi::struct_version;

/// Writes elements with indentation.
struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(&"\t".repeat(self.depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn element(&mut self, name: &str, value: &str) {
        let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.line(&format!("<{name}>{value}</{name}>"));
    }

    fn inside(&mut self, name: &str, attributes: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("<{name}{attributes}>"));
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line(&format!("</{name}>"));
    }
}

/// Prints the document.
pub(super) fn print(library: &Library, readings: &[Reading]) -> String {
    let mut writer = Writer { text: String::new(), depth: 0 };
    writer.line("<?xml version=\"1.0\" ?>");
    writer.line("<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">");
    let driver = library.text0("nvmlSystemGetDriverVersion").unwrap_or("N/A".into());
    let cuda = library.value0::<i32>("nvmlSystemGetCudaDriverVersion_v2").map_or("N/A".into(), cuda_text);
    writer.inside("nvidia_smi_log", "", |writer| {
        writer.element("driver_version", &driver);
        writer.element("cuda_version", &cuda);
        writer.element("attached_gpus", &readings.len().to_string());
        for reading in readings {
            let id = reading.pci.map_or("N/A".to_owned(), |pci| pci.id());
            writer.inside("gpu", &format!(" id=\"{id}\""), |writer| card(writer, library, reading));
        }
    });
    writer.text
}

fn card(writer: &mut Writer, library: &Library, reading: &Reading) {
    let text = |value: &Result<String, u32>| value.clone().unwrap_or("N/A".into());
    let of_card = |function: &str| library.text(function, reading.device).unwrap_or("N/A".into());
    writer.element("product_name", &text(&reading.name));
    let brand: Result<u32, u32> = library.value("nvmlDeviceGetBrand", reading.device);
    writer.element("product_brand", brand.ok().and_then(Brand::from_nvml).map_or("Unknown", Brand::text));
    let architecture: Result<u32, u32> = library.value("nvmlDeviceGetArchitecture", reading.device);
    let architecture = architecture.ok().and_then(Architecture::from_nvml);
    writer.element("product_architecture", architecture.map_or("Unknown", Architecture::text));
    writer.element("persistence_mode", mode(reading.persistence));
    writer.element("addressing_mode", addressing_mode(library, reading));
    writer.inside("mig_mode", "", |writer| {
        writer.element("current_mig", mode(reading.mig.map(|(current, _)| current)));
        writer.element("pending_mig", mode(reading.mig.map(|(_, pending)| pending)));
    });
    mig_devices(writer, reading);
    writer.element("serial", &text(&reading.serial));
    writer.element("uuid", &text(&reading.uuid));
    writer.element("minor_number", &reading.minor.map_or("N/A".into(), |minor| minor.to_string()));
    writer.element("vbios_version", &of_card("nvmlDeviceGetVbiosVersion"));
    writer.element("board_part_number", &of_card("nvmlDeviceGetBoardPartNumber"));
    writer.inside("inforom_version", "", |writer| {
        writer.element("img_version", &of_card("nvmlDeviceGetInforomImageVersion"));
    });
    if let Ok(pci) = reading.pci {
        writer.inside("pci", "", |writer| {
            writer.element("pci_bus", &format!("{:02X}", pci.bus));
            writer.element("pci_device", &format!("{:02X}", pci.device));
            writer.element("pci_domain", &format!("{:04X}", pci.domain));
            writer.element("pci_device_id", &format!("{:08X}", pci.device_id));
            writer.element("pci_bus_id", &pci.id());
            writer.element("pci_sub_system_id", &format!("{:08X}", pci.subsystem_id));
        });
    }
    if let Ok(memory) = reading.memory {
        writer.inside("fb_memory_usage", "", |writer| {
            for (name, bytes) in [
                ("total", memory.total),
                ("reserved", memory.reserved),
                ("used", memory.used),
                ("free", memory.free),
            ] {
                writer.element(name, &format!("{} MiB", mib(bytes)));
            }
        });
    }
    if let Ok([total, free, used]) = reading.bar1 {
        writer.inside("bar1_memory_usage", "", |writer| {
            for (name, bytes) in [("total", total), ("used", used), ("free", free)] {
                writer.element(name, &format!("{} MiB", mib(bytes)));
            }
        });
    }
    writer.element("compute_mode", reading.compute_mode_text());
    writer.inside("utilization", "", |writer| {
        let percent = |value: Result<u32, u32>| value.map_or("N/A".to_owned(), |value| format!("{value} %"));
        writer.element("gpu_util", &percent(reading.utilization.map(|[gpu, _]| gpu)));
        writer.element("memory_util", &percent(reading.utilization.map(|[_, memory]| memory)));
    });
    writer.inside("ecc_mode", "", |writer| {
        writer.element("current_ecc", mode(reading.ecc.map(|(current, _)| current)));
        writer.element("pending_ecc", mode(reading.ecc.map(|(_, pending)| pending)));
    });
    writer.inside("temperature", "", |writer| {
        writer
            .element("gpu_temp", &reading.temperature.map_or("N/A".into(), |celsius| format!("{celsius} C")));
    });
    writer.inside("gpu_power_readings", "", |writer| {
        let watts = |value: Result<u32, u32>| {
            value.map_or("N/A".to_owned(), |value| format!("{}.{:02} W", value / 1000, value % 1000 / 10))
        };
        writer.element("instant_power_draw", &watts(reading.power));
        writer.element("current_power_limit", &watts(reading.power_limit));
    });
    fabric(writer, library, reading);
    writer.inside("processes", "", |writer| {
        for process in reading.processes.iter().flatten() {
            writer.inside("process_info", "", |writer| {
                let [gpu_instance, compute_instance] = process.instances.map(|id| match id {
                    u32::MAX => "N/A".to_owned(),
                    id => id.to_string(),
                });
                writer.element("gpu_instance_id", &gpu_instance);
                writer.element("compute_instance_id", &compute_instance);
                writer.element("pid", &process.pid.to_string());
                writer.element("type", "C");
                writer.element("used_memory", &format!("{} MiB", mib(process.used)));
            });
        }
    });
}

fn addressing_mode(library: &Library, reading: &Reading) -> &'static str {
    // nvmlDeviceAddressingMode_v1_t: version, value.
    let mut mode = [struct_version::<[u32; 2]>(1), 0];
    match library.fill("nvmlDeviceGetAddressingMode", reading.device, &mut mode).map(|()| mode[1]) {
        Ok(0) => "None",
        Ok(1) => "HMM",
        Ok(2) => "ATS",
        _ => "N/A",
    }
}

fn mig_devices(writer: &mut Writer, reading: &Reading) {
    if reading.mig_devices.is_empty() {
        writer.element("mig_devices", "None");
        return;
    }
    writer.inside("mig_devices", "", |writer| {
        for device in &reading.mig_devices {
            let number = |value: Result<u32, u32>| value.map_or("N/A".to_owned(), |value| value.to_string());
            writer.inside("mig_device", "", |writer| {
                writer.element("index", &device.index.to_string());
                writer.element("gpu_instance_id", &number(device.gpu_instance));
                writer.element("compute_instance_id", &number(device.compute_instance));
                if let Ok(attributes) = device.attributes {
                    writer.inside("device_attributes", "", |writer| {
                        writer.inside("shared", "", |writer| {
                            for (name, value) in [
                                ("multiprocessor_count", attributes.multiprocessorCount),
                                ("copy_engine_count", attributes.sharedCopyEngineCount),
                                ("encoder_count", attributes.sharedEncoderCount),
                                ("decoder_count", attributes.sharedDecoderCount),
                                ("ofa_count", attributes.sharedOfaCount),
                                ("jpg_count", attributes.sharedJpegCount),
                            ] {
                                writer.element(name, &value.to_string());
                            }
                        });
                    });
                }
                if let Ok(memory) = device.memory {
                    writer.inside("fb_memory_usage", "", |writer| {
                        for (name, bytes) in [
                            ("total", memory.total),
                            ("reserved", memory.reserved),
                            ("used", memory.used),
                            ("free", memory.free),
                        ] {
                            writer.element(name, &format!("{} MiB", mib(bytes)));
                        }
                    });
                }
            });
        }
    });
}

/// `nvmlGpuFabricInfo_t`
#[repr(C)]
#[derive(Default)]
struct Fabric {
    cluster: [u8; 16],
    status: u32,
    clique: u32,
    state: u8,
}

/// Elements as in captures; a card without fabric has them too.
fn fabric(writer: &mut Writer, library: &Library, reading: &Reading) {
    let mut fabric = Fabric::default();
    let found = library.fill("nvmlDeviceGetGpuFabricInfo", reading.device, &mut fabric);
    // nvmlGpuFabricState_t
    let state = match found.map(|()| fabric.state) {
        Ok(1) => "Not Started",
        Ok(2) => "In Progress",
        Ok(3) => "Completed",
        _ => "N/A",
    };
    let completed = state == "Completed";
    let or = |text: String| if completed { text } else { "N/A".to_owned() };
    let digits: String = fabric.cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    let status = if fabric.status == 0 { "Success".to_owned() } else { library.error_text(fabric.status) };
    writer.inside("fabric", "", |writer| {
        writer.element("state", state);
        writer.element("status", &or(status));
        writer.element("cliqueId", &or(fabric.clique.to_string()));
        writer.element("clusterUuid", &or(parts.join("-")));
    });
}
