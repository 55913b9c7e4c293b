//! Estimates of calls: cost, and size of the result.

use tessera_api::kubernetes::KubernetesVersion;

use super::Estimator;
use super::limits;
use super::path::Path;
use super::range::Range;
use super::sizes::union;
use crate::check::types::Type;
use crate::environment::is_1_37;
use crate::syntax::ast::{Kind, Literal, NodeId};

/// Cost of traversing a text, per character.
const TRAVERSAL: f64 = 0.1;
/// Cost of a pattern, per character.
const PATTERN: f64 = 0.25;
/// MaxNameFormatRegexSize and MaxFormatSize of k8s.io/apiserver.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT: u64 = 64;

/// An argument or the target of a call.
#[derive(Debug, Clone)]
pub(super) struct Operand<'a> {
    /// None for the elements of a list.
    pub node: Option<NodeId>,
    pub path: Path,
    pub of: &'a Type,
    pub size: Option<Range>,
}

impl Operand<'_> {
    /// The size as computed by the libraries of Kubernetes: they also use the path.
    fn size(&self) -> Range {
        self.size.or_else(|| self.path.device_size().map(Range::up_to)).unwrap_or(Range::UNKNOWN)
    }

    /// The size as computed by cel-go's standard functions.
    fn known_size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    /// The elements of a list.
    fn elements(&self) -> Option<Operand<'_>> {
        let of = match self.of {
            Type::List(element) => element,
            Type::Map(pair) => &pair.0,
            Type::Opaque(_, parameters) => parameters.first()?,
            Type::Meta(of) => of.as_ref()?,
            _ => return None,
        };
        let path = if self.path.is_empty() { Path::default() } else { self.path.copy_and_append("@items") };
        Some(Operand { node: None, path, of, size: None })
    }
}

/// Cost of a call, and size of its result if known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub cost: Range,
    pub size: Option<Range>,
}

impl Call {
    fn costs(cost: Range) -> Call {
        Call { cost, size: None }
    }

    fn makes(self, size: Range) -> Call {
        Call { size: Some(size), ..self }
    }
}

impl<'a> Estimator<'a> {
    /// The estimate for one overload. `costs` are for the arguments, without the target.
    pub(super) fn function_cost(
        &mut self,
        node: NodeId,
        function: &str,
        overload: &str,
        target: Option<&Operand<'a>>,
        arguments: &[Operand<'a>],
        costs: &[Range],
    ) -> Call {
        let sum = costs.iter().copied().fold(Range::default(), Range::add);
        let estimate = self
            .list_cost(overload, target, arguments)
            .or_else(|| self.library_cost(function, overload, target, arguments));
        if let Some(estimate) = estimate {
            return Call { cost: estimate.cost.add(sum), ..estimate };
        }
        match (overload, arguments) {
            ("logical_or" | "logical_and", _) => {
                let least = costs.first().map_or(0, |first| first.min);
                return Call::costs(Range { min: least, max: sum.max });
            }
            ("conditional", [_, one, two]) => {
                let size = one.known_size().union(two.known_size());
                let entries = |operand: &Operand<'a>| operand.node.and_then(|node| self.entries(node));
                let entries = union(entries(one), entries(two));
                self.set_entries(node, entries);
                return Call::costs(costs[0].add(costs[1].union(costs[2]))).makes(size);
            }
            ("add_string" | "add_bytes" | "add_list", [one, two]) => {
                let size = one.known_size().add(two.known_size());
                let entries = |operand: &Operand<'a>| operand.node.and_then(|node| self.entries(node));
                let entries = union(entries(one), entries(two));
                self.set_entries(node, entries);
                let cost = if overload == "add_list" { Range::exactly(1) } else { size.times(TRAVERSAL) };
                return Call::costs(cost.add(sum)).makes(size);
            }
            _ => {}
        }
        let estimate = standard_cost(overload, target, arguments, self.checked.version);
        Call { cost: estimate.cost.add(sum), ..estimate }
    }

    /// Functions of cel-go's libraries of lists and sets.
    fn list_cost(
        &self,
        overload: &str,
        target: Option<&Operand<'a>>,
        arguments: &[Operand<'a>],
    ) -> Option<Call> {
        let made = |size: Range, factor: f64| {
            Some(Call::costs(size.times(factor).add(Range::exactly(11))).makes(size))
        };
        match (overload, target, arguments) {
            ("list_slice", Some(target), [start, end]) => {
                let start = self.number(start, 0);
                let end = self.number(end, target.size().max);
                made(Range::exactly(end.wrapping_sub(start)), 1.0)
            }
            ("list_flatten", Some(target), []) => made(target.size(), 1.0),
            ("list_flatten_int", Some(target), [depth]) => {
                made(target.size(), self.number(depth, u64::MAX) as f64)
            }
            ("lists_range", None, [count]) => made(Range::exactly(self.number(count, u64::MAX)), 1.0),
            ("list_reverse", Some(target), []) => made(target.size(), 1.0),
            ("list_distinct", Some(target), []) => made(target.size().multiply(target.size()), 2.0),
            ("list_sets_contains_list" | "list_sets_intersects_list", _, [one, two]) => {
                Some(Call::costs(one.size().multiply(two.size()).times(1.0).add(Range::exactly(1))))
            }
            ("list_sets_equivalent_list", _, [one, two]) => {
                Some(Call::costs(one.size().multiply(two.size()).times(2.0).add(Range::exactly(1))))
            }
            (sort, Some(target), []) if sort.starts_with("list_") && sort.ends_with("_sort") => {
                made(target.size().multiply(target.size()), sort_factor(sort))
            }
            (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => {
                made(keys.size().multiply(keys.size()), sort_factor(sort))
            }
            _ => None,
        }
    }

    /// The value of a number literal.
    fn number(&self, operand: &Operand<'a>, otherwise: u64) -> u64 {
        match operand.node.map(|node| self.ast.kind(node)) {
            Some(Kind::Literal(Literal::Int(value))) => u64::try_from(*value).unwrap_or(0),
            _ => otherwise,
        }
    }

    /// Functions of Kubernetes' libraries, and their rules for some of cel-go's; by the function's name.
    fn library_cost(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Operand<'a>>,
        arguments: &[Operand<'a>],
    ) -> Option<Call> {
        let fixed = |cost: u64| Some(Call::costs(Range::exactly(cost)));
        // Addresses have 4 or 16 bytes.
        let addresses = Range { min: 8, max: 32 }.times(TRAVERSAL);
        match (function, target, arguments) {
            ("includes", Some(_), _) if !is_1_37(self.checked.version) => {
                Some(Call::costs(Range::up_to(limits::ATTRIBUTE_VALUES)))
            }
            ("check", ..) => fixed(350_000),
            (
                "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
                | "allowed" | "reason" | "error" | "errored",
                ..,
            ) => fixed(1),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let parse = selector.size().times(TRAVERSAL);
                let requirements = selector.size().times(0.5).times(50.0);
                Some(Call::costs(Range::exactly(10).add(parse).add(requirements)))
            }
            (
                "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes",
                Some(target),
                _,
            ) => Some(Call::costs(match target.elements() {
                Some(elements) => {
                    let mut each = Range::exactly(1);
                    if matches!(elements.of, Type::String | Type::Bytes) {
                        each = each.add(elements.size().times(TRAVERSAL));
                    }
                    target.size().multiply(each)
                }
                None if function == "includes" => target.size(),
                None => target.size().times(TRAVERSAL),
            })),
            ("url", _, [text]) => Some(Call::costs(text.size().times(TRAVERSAL)).makes(text.size())),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                Some(Call::costs(target.size().times(TRAVERSAL)).makes(target.size()))
            }
            ("replace", Some(target), [old, new, ..]) => {
                let size = replaced(target.size(), old.size(), new.size());
                Some(Call::costs(target.size().times(2.0 * TRAVERSAL)).makes(size))
            }
            ("split", Some(target), _) => {
                let size = target.size();
                let most = match arguments.get(1).and_then(|limit| limit.node).map(|node| self.ast.kind(node))
                {
                    Some(Kind::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => size.max,
                };
                Some(Call::costs(size.times(2.0 * TRAVERSAL)).makes(Range::up_to(most)))
            }
            ("join", Some(target), _) => {
                let count = target.size();
                let mut size =
                    target.elements().map_or(Range::default(), |elements| count.multiply(elements.size()));
                if let Some(separator) = arguments.first() {
                    let separators =
                        Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.add(separator.size().multiply(separators));
                }
                Some(Call::costs(size.times(TRAVERSAL)).makes(size))
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = target.size();
                Some(Call::costs(pattern_cost(size, pattern.size())).makes(Range::up_to(size.max)))
            }
            ("ip", ..) if overload == "cidr_ip" => fixed(1),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [text, ..],
            ) => Some(Call::costs(text.size().times(TRAVERSAL))),
            ("ip.isCanonical", _, [text, ..]) => Some(Call::costs(text.size().times(2.0 * TRAVERSAL))),
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                ..,
            ) => fixed(1),
            ("containsIP", _, [other, ..]) => {
                let parse = if overload == "cidr_contains_ip_string" {
                    other.size().times(TRAVERSAL)
                } else {
                    Range::default()
                };
                Some(Call::costs(addresses.add(parse)))
            }
            ("containsCIDR", _, [other, ..]) => {
                let parse = if overload == "cidr_contains_cidr_string" {
                    other.size().times(TRAVERSAL)
                } else {
                    Range::default()
                };
                let mask = Range { min: 4, max: 16 }.times(TRAVERSAL).add(Range::exactly(1));
                Some(Call::costs(addresses.add(mask).add(parse)))
            }
            ("validate", _, [text, ..]) => {
                Some(Call::costs(text.size().times(TRAVERSAL).times(FORMAT_PATTERN * PATTERN)))
            }
            ("_==_", _, [one, two]) if one.of == two.of => match one.of {
                Type::Opaque("net.IP" | "net.CIDR", _)
                | Type::Struct(
                    "kubernetes.Quantity"
                    | "kubernetes.Semver"
                    | "kubernetes.authorization.Authorizer"
                    | "kubernetes.authorization.PathCheck"
                    | "kubernetes.authorization.GroupCheck"
                    | "kubernetes.authorization.ResourceCheck"
                    | "kubernetes.authorization.Decision",
                ) => fixed(1),
                Type::Struct("kubernetes.NamedFormat") => {
                    Some(Call::costs(Range { min: 1, max: FORMAT }.times(TRAVERSAL)))
                }
                Type::Struct("kubernetes.URL") => {
                    let most = two.size.map_or(1, |size| size.max);
                    Some(Call::costs(Range { min: 1, max: most }.times(TRAVERSAL)))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn sort_factor(overload: &str) -> f64 {
    let texts = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
    if texts { 2.0 + TRAVERSAL } else { 2.0 }
}

fn pattern_cost(text: Range, pattern: Range) -> Range {
    text.add(Range::exactly(1)).times(TRAVERSAL).multiply(pattern.times(PATTERN))
}

/// Size of a text after replacing `old` by `new`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::default(), Range::default());
    if old.min == 0 {
        // Every character is surrounded by the new text.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.multiply(new).add(kept)
}

/// cel-go's own functions, by overload.
fn standard_cost(
    overload: &str,
    target: Option<&Operand<'_>>,
    arguments: &[Operand<'_>],
    version: KubernetesVersion,
) -> Call {
    match (overload, target, arguments) {
        ("string_format", Some(target), _) => Call::costs(target.known_size().times(TRAVERSAL)),
        ("string_to_bytes", _, [text]) => {
            let size = text.known_size();
            // Wraps around like Go's multiplication.
            Call::costs(size.times(TRAVERSAL)).makes(Range { min: size.min, max: size.max.wrapping_mul(4) })
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = bytes.known_size();
            Call::costs(size.times(TRAVERSAL)).makes(Range { min: size.min / 4, max: size.max })
        }
        ("strings_quote", _, [text]) => {
            let size = text.known_size();
            let quoted =
                Range { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
            Call::costs(size.times(TRAVERSAL)).makes(quoted)
        }
        ("starts_with_string" | "ends_with_string", _, [prefix]) => {
            Call::costs(prefix.known_size().times(TRAVERSAL))
        }
        ("in_list", _, [_, list]) => Call::costs(list.known_size().times(1.0)),
        ("matches_string", Some(target), [pattern]) => {
            Call::costs(pattern_cost(target.known_size(), pattern.known_size()))
        }
        ("matches", None, [text, pattern]) if is_1_37(version) => {
            Call::costs(pattern_cost(text.known_size(), pattern.known_size()))
        }
        ("contains_string", Some(target), [part]) => {
            let (text, part) = (target.known_size().times(TRAVERSAL), part.known_size().times(TRAVERSAL));
            Call::costs(text.multiply(part))
        }
        (
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals",
            _,
            [one, two],
        ) => {
            let most = one.known_size().max.min(two.known_size().max);
            Call::costs(Range { min: u64::from(most > 0), max: most }.times(TRAVERSAL))
        }
        _ => Call::costs(Range::exactly(1)),
    }
}
