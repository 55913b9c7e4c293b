//! Shrinks a JSON value while keeping a property.

use serde_json::Value;

/// Removes elements of lists and fields of objects, largest parts first, as long as `still_holds` returns true.
pub fn shrink(mut value: Value, mut still_holds: impl FnMut(&Value) -> bool) -> Value {
    loop {
        let mut has_shrunk = false;
        let mut places = Vec::new();
        collect(&value, String::new(), &mut places);
        for place in places {
            let mut smaller = value.clone();
            if remove(&mut smaller, &place) && still_holds(&smaller) {
                value = smaller;
                has_shrunk = true;
            }
        }
        if !has_shrunk {
            return value;
        }
    }
}

/// JSON pointers of all parts; later elements of a list come first, so that a removal does not move the others.
fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Array(all) => {
            all.iter().enumerate().rev().map(|(index, item)| (index.to_string(), item)).collect()
        }
        Value::Object(all) => {
            all.iter().map(|(key, item)| (key.replace('~', "~0").replace('/', "~1"), item)).collect()
        }
        _ => Vec::new(),
    };
    for (key, child) in children {
        let place = format!("{at}/{key}");
        places.push(place.clone());
        collect(child, place, places);
    }
}

fn remove(value: &mut Value, place: &str) -> bool {
    let Some((parent, key)) = place.rsplit_once('/') else { return false };
    match value.pointer_mut(parent) {
        Some(Value::Array(all)) => match key.parse::<usize>() {
            Ok(index) if index < all.len() => {
                all.remove(index);
                true
            }
            _ => false,
        },
        // The request's number decides on the way of asking.
        Some(Value::Object(all)) if key != "id" => {
            all.remove(&key.replace("~1", "/").replace("~0", "~")).is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::shrink;

    #[test]
    fn what_matters_stays() {
        let value = json!({"id": 3, "a": [1, 2, {"b": "x", "c": 1}], "d": {"e/f": [5]}});
        let has_x = |value: &serde_json::Value| value.to_string().contains("\"x\"");
        assert_eq!(shrink(value, has_x), json!({"id": 3, "a": [{"b": "x"}]}));
    }
}
