//! Events about unreadable objects.

use super::*;

mod relist;

fn name(name: &str) -> Name {
    Name {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        uid: format!("u-{name}"),
        resource_version: "1".to_owned(),
    }
}

fn odd(json: &str) -> Result<Object, Unreadable> {
    let error = read_as::<ResourceClaim>(json.as_bytes()).unwrap_err();
    Err(Unreadable { error, json: json.as_bytes().to_vec() })
}

fn deep() -> String {
    format!(
        r#"{{"metadata":{{"name":"deep","namespace":"n"}},"spec":{{"devices":{{"config":[{{"opaque":{{"driver":"d",
        "parameters":{}{}}}}}]}}}},"status":{{"allocation":{{"devices":{{"results":[{{"device":"gpu-0","driver":"d","pool":"p",
        "request":"r"}}]}}}}}}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    )
}

#[test]
fn one_that_cannot_be_read_is_absent_with_what_it_holds_and_gone_when_a_list_lacks_it() {
    let mut known = Known::new(Kind::ResourceClaim);
    known.list = 1;
    let Seen::Change(Observation::Unreadable { key, holds: Some(holds), why, .. }) =
        known.see(name("deep"), odd(&deep()))
    else {
        panic!("it is not read")
    };
    assert_eq!((key.name.as_str(), Key::from(&holds.metadata)), ("deep", key.clone()));
    assert!(why.contains("recursion limit"), "{why}");
    let claim = ResourceClaim { metadata: holds.metadata.clone(), ..ResourceClaim::default() };
    assert!(matches!(known.see(name("good"), Ok(claim.into())), Seen::Change(Observation::Applied(_))));
    known.list = 2;
    known.see(name("good"), Ok(ResourceClaim::default().into()));
    let seen = known.complete(Duration::ZERO);
    let [Seen::Change(Observation::Deleted(Kind::ResourceClaim, gone)), Seen::Complete(_), Seen::Change(_)] =
        seen.as_slice()
    else {
        panic!("{seen:?}")
    };
    assert_eq!(gone.name, "deep");
    assert!(known.unreadable.is_empty());
}

#[test]
fn a_template_that_cannot_be_read_holds_nothing() {
    let mut known = Known::new(Kind::ResourceClaimTemplate);
    let seen = known.see(name("t"), odd(&deep()));
    assert!(matches!(seen, Seen::Change(Observation::Unreadable { holds: None, .. })), "{seen:?}");
}
