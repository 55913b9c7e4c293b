//! [`DeviceConfig::decode`](super::DeviceConfig::decode) for the API server: a CEL expression finding faults of objects, for the chart's
//! ValidatingAdmissionPolicy.

use super::error::show_in_cel;
use super::form::{Checks, Form, text};
use super::{
    API_VERSION, GpuConfig, MigDeviceConfig, NO_PARAMETERS, NOT_OUR_API_VERSION, NVIDIA_API_VERSION,
    NVIDIA_DRIVER_NAME, NVIDIA_NAME_ONLY, kind_reason, nvidia,
};

/// Fields of every object.
const HEAD: &[&str] = &["apiVersion", "kind"];

/// The expression over `variables.objects`: for each entry of `devices.config` a list of its object, or an empty list for entries
/// of another driver. The result has a list for each entry: empty, or the list of a fault's place, the value found
/// there and the reason of the fault. `variables.driverName` is the driver's name.
#[must_use]
pub fn faults_expression() -> String {
    let mut own = Checks::default();
    head(
        &mut own,
        &[(GpuConfig::KIND, GpuConfig::FORM), (MigDeviceConfig::KIND, MigDeviceConfig::FORM)],
        &[],
    );
    let mut theirs = Checks::default();
    head(&mut theirs, nvidia::FORMS, nvidia::UNSUPPORTED);

    let version = "object.?apiVersion.orValue(null)";
    let mut all = Checks::default();
    all.find("type(object) != map", "parameters", "object", NO_PARAMETERS);
    all.leave_to(format!("{version} == {}", text(API_VERSION)), &own);
    let is_nvidias = format!("{version} == {}", text(NVIDIA_API_VERSION));
    let has_its_name = format!("variables.driverName == {}", text(NVIDIA_DRIVER_NAME));
    all.leave_to(format!("{is_nvidias} && {has_its_name}"), &theirs);
    all.find(is_nvidias, "apiVersion", version, NVIDIA_NAME_ONLY);
    all.find("true", "apiVersion", version, NOT_OUR_API_VERSION);
    let expression = all.expression().replace('\n', "\n  ");
    format!(
        "variables.objects.map(objects, objects.map(object,\n  {expression}\n).filter(found, found.size() > 0))\n"
    )
}

/// The message for `found`, a fault found by [`faults_expression`], in the words of [`ConfigError`](super::ConfigError).
#[must_use]
pub fn shown_expression() -> String {
    format!("string(found[0]) + \": \" + (\n  {}\n) + \" \" + string(found[2])\n", show_in_cel("found[1]"))
}

fn head(checks: &mut Checks, kinds: &[(&str, Form)], unsupported: &[(&str, &str)]) {
    let kind = "object.?kind.orValue(null)";
    for (name, reason) in unsupported {
        checks.find(format!("{kind} == {}", text(name)), "kind", kind, reason);
    }
    for (name, form) in kinds {
        let Form::Object(fields, contradictions) = form else { continue };
        let mut inner = Checks::default();
        inner.object(name, "object", HEAD, fields, contradictions);
        checks.leave_to(format!("{kind} == {}", text(name)), &inner);
    }
    checks.find("true", "kind", kind, &kind_reason());
}
