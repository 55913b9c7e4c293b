use tessera_api::PciBusId;

use super::report;
use super::smi::Log;

fn card(bus: u8) -> PciBusId {
    PciBusId::new(0, bus, 0, 0).unwrap()
}

/// Version 13 of the tool's format, shortened to the fields we read.
const XML: &str = r#"<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
	<driver_version>580.95.05</driver_version>
	<cuda_version>13.0</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:3B:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<mig_devices>
			None
		</mig_devices>
		<pci><pci_bus_id>00000000:3B:00.0</pci_bus_id></pci>
		<fabric><state>Completed</state><cliqueId>0</cliqueId></fabric>
		<processes>
			<process_info><pid>4711</pid><type>C</type></process_info>
		</processes>
	</gpu>
</nvidia_smi_log>"#;

#[test]
fn the_tools_xml_is_understood() {
    let log = Log::parse(XML).unwrap();
    assert_eq!(log.text(&["driver_version"]), Some("580.95.05"));
    let (position, gpu) = log.gpu(card(0x3b)).unwrap();
    assert_eq!(position, 0);
    assert_eq!(gpu.text(&["product_name"]), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(gpu.text(&["mig_devices"]), Some("None"));
    assert_eq!(gpu.text(&["fabric", "clique_id"]), Some("0"), "spelled in another way");
    assert_eq!(gpu.text(&["fabric", "clusterUuid"]), None);
    assert_eq!(gpu.pids(), Some(vec!["4711"]));
    assert!(log.gpu(card(0x3c)).is_none());
}

#[test]
fn other_output_is_refused() {
    for text in
        ["", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", "<html></html>"]
    {
        assert!(Log::parse(text).is_err(), "{text:?}");
    }
}

mod verdicts {
    use super::super::compare::{Comparing, Verdict};
    use super::card;

    fn verdict(compare: impl FnOnce(&mut Comparing)) -> Verdict {
        let mut comparing = Comparing::of(Some(card(0x3b)));
        compare(&mut comparing);
        comparing.all[0].verdict
    }

    #[test]
    fn spelling_is_not_a_difference() {
        for (ours, theirs) in
            [("QuadroRTX", "Quadro RTX"), ("Nvidia", "NVIDIA"), ("Ada Lovelace", "Ada Lovelace")]
        {
            assert_eq!(verdict(|it| it.loosely("brand", ours.into(), Some(theirs))), Verdict::Ok);
        }
        assert_eq!(verdict(|it| it.loosely("brand", "Tesla".into(), Some("NVIDIA"))), Verdict::Different);
    }

    #[test]
    fn what_the_tool_does_not_say_is_not_compared() {
        assert_eq!(verdict(|it| it.exactly("name", "A".into(), None)), Verdict::NotCompared);
        assert_eq!(verdict(|it| it.shown("used", "1 MiB".into(), Some("1 MiB"))), Verdict::NotCompared);
    }

    #[test]
    fn our_failure_is_a_difference_even_where_the_tool_is_silent() {
        assert_eq!(verdict(|it| it.shown("used", "FAILED: no".into(), None)), Verdict::Different);
        assert_eq!(verdict(|it| it.exactly("name", "FAILED: no".into(), Some("A"))), Verdict::Different);
    }

    #[test]
    fn a_changing_value_is_shown_only() {
        assert_eq!(verdict(|it| it.shown("used", "1 MiB".into(), Some("2 MiB"))), Verdict::NotCompared);
    }
}

#[test]
fn json_counts_differences() {
    let mut comparing = super::compare::Comparing::of(Some(card(0x3b)));
    comparing.exactly("name", "A".into(), Some("B"));
    comparing.exactly("uuid", "GPU-1".into(), Some("GPU-1"));
    let json = report::json(&comparing.all);
    assert_eq!(json["different"], 1);
    assert_eq!(json["fields"][0]["card"], "0000:3b:00.0");
    assert_eq!(json["fields"][0]["verdict"], "DIFFERENT");
    assert!(report::tables(&comparing.all).ends_with("1 OK, 1 different, 0 not compared"));
}
