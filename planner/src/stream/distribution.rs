//! Where rows have to meet. A stateful operator takes its input hashed by exactly its state key (graph.rs says which), so that the key
//! groups of its state are those of its exchange; an exchange is needed where the input is not already distributed that way.

use millpond_engine::graph::{Distribution, JoinKind, JoinSpec, OperatorSpec};

use super::{columns::plain_columns, node::StreamNode};

/// Which subtask has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Partitioning {
    /// Nothing is known.
    Any,
    /// There is one subtask.
    Single,
    /// By hash of a sequence of columns; at each place several columns may hold the same value.
    Hash(Vec<Vec<usize>>),
}

/// What an operator demands of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Rows may be anywhere.
    None,
    /// Rows may be anywhere, but on all subtasks of the job.
    Parallel,
    /// One subtask gets every row.
    Single,
    /// By hash of these columns.
    Hash(Vec<usize>),
}

impl Requirement {
    /// Hash of the columns, or one subtask if there are none.
    pub(crate) fn keyed(columns: Vec<usize>) -> Self {
        if columns.is_empty() { Self::Single } else { Self::Hash(columns) }
    }

    /// The exchange that is needed above an input; `None` if it already is where it has to be.
    pub(crate) fn exchange(&self, input: &Partitioning) -> Option<Distribution> {
        match (self, input) {
            (Self::None, _) | (Self::Parallel, Partitioning::Any | Partitioning::Hash(_)) | (Self::Single, Partitioning::Single) => None,
            (Self::Parallel, Partitioning::Single) => Some(Distribution::RoundRobin),
            (Self::Single, _) => Some(Distribution::Single),
            (Self::Hash(columns), Partitioning::Hash(places)) if matches(columns, places) => None,
            (Self::Hash(columns), _) => Some(Distribution::Hash(columns.clone())),
        }
    }

    /// How rows lie after the requirement has been met.
    fn met(&self, input: &Partitioning) -> Partitioning {
        match self.exchange(input) {
            None => input.clone(),
            Some(Distribution::Single) => Partitioning::Single,
            Some(Distribution::Hash(columns)) => Partitioning::Hash(columns.into_iter().map(|column| vec![column]).collect()),
            Some(Distribution::Forward | Distribution::Broadcast | Distribution::RoundRobin) => Partitioning::Any,
        }
    }
}

fn matches(columns: &[usize], places: &[Vec<usize>]) -> bool {
    columns.len() == places.len() && columns.iter().zip(places).all(|(column, place)| place.contains(column))
}

/// `columns` in an order in which the input already is distributed by them, if it is.
pub(crate) fn aligned(columns: &[usize], input: &Partitioning) -> Option<Vec<usize>> {
    let Partitioning::Hash(places) = input else { return None };
    if places.len() != columns.len() {
        return None;
    }
    let mut left: Vec<usize> = columns.to_vec();
    let mut ordered = Vec::with_capacity(columns.len());
    for place in places {
        let found = left.iter().position(|column| place.contains(column))?;
        ordered.push(left.remove(found));
    }
    Some(ordered)
}

/// What an operator demands of each input.
pub(super) fn requirements(spec: &OperatorSpec, inputs: &[&StreamNode]) -> Vec<Requirement> {
    use millpond_engine::graph::CollectionKeySpec;
    match spec {
        OperatorSpec::Aggregate(spec) => vec![Requirement::keyed(spec.group_by.clone())],
        OperatorSpec::TopN(spec) => vec![Requirement::keyed(spec.partition_by.clone())],
        OperatorSpec::EmitOnWindowClose { column } => vec![Requirement::Hash(vec![*column])],
        OperatorSpec::ScalarSubquery => vec![Requirement::Single],
        OperatorSpec::Join(spec) => {
            let (left, right) = spec.on.iter().copied().unzip();
            vec![Requirement::keyed(left), Requirement::keyed(right)]
        }
        // Contents that come from one subtask, mostly few, are kept by one.
        OperatorSpec::Materialize { .. } if inputs.iter().all(|input| input.properties.partitioning == Partitioning::Single) => {
            vec![Requirement::Single]
        }
        OperatorSpec::Materialize { key, .. } => vec![match key {
            CollectionKeySpec::Columns(columns) => Requirement::keyed(columns.clone()),
            CollectionKeySpec::WholeRow => Requirement::keyed((0..inputs.first().map_or(0, |input| input.width())).collect()),
            CollectionKeySpec::AppendOnly => Requirement::None,
        }],
        // Inputs of a union run in one fragment: those that are alone on one subtask spread, unless all are.
        OperatorSpec::Union => {
            let all_single = inputs.iter().all(|input| input.properties.partitioning == Partitioning::Single);
            vec![if all_single { Requirement::None } else { Requirement::Parallel }; inputs.len()]
        }
        OperatorSpec::Filter { .. } | OperatorSpec::Project { .. } | OperatorSpec::HopWindow { .. } | OperatorSpec::Discard => {
            vec![Requirement::None]
        }
        OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } | OperatorSpec::Values { .. } => Vec::new(),
    }
}

/// How the output is distributed.
pub(super) fn partitioning(spec: &OperatorSpec, inputs: &[&StreamNode], requirements: &[Requirement]) -> Partitioning {
    let met: Vec<Partitioning> =
        inputs.iter().zip(requirements).map(|(input, requirement)| requirement.met(&input.properties.partitioning)).collect();
    match spec {
        OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } => Partitioning::Any,
        OperatorSpec::Values { .. } => Partitioning::Single,
        OperatorSpec::Project { expressions } => {
            let plain = plain_columns(expressions);
            moved(&met[0], |column| (0..plain.len()).filter(|output| plain[*output] == Some(column)).collect())
        }
        OperatorSpec::Aggregate(spec) => {
            moved(&met[0], |column| spec.group_by.iter().position(|group| *group == column).into_iter().collect())
        }
        OperatorSpec::Join(spec) => joined(spec, inputs[0].width(), &met),
        OperatorSpec::Union => {
            let first = met.first().cloned().unwrap_or(Partitioning::Single);
            if met.iter().all(|other| *other == first) { first } else { Partitioning::Any }
        }
        OperatorSpec::Filter { .. }
        | OperatorSpec::HopWindow { .. }
        | OperatorSpec::TopN(_)
        | OperatorSpec::EmitOnWindowClose { .. }
        | OperatorSpec::ScalarSubquery
        | OperatorSpec::Materialize { .. }
        | OperatorSpec::Discard => met[0].clone(),
    }
}

/// A place of a hash whose columns are all gone makes the whole hash useless.
fn moved(partitioning: &Partitioning, map: impl Fn(usize) -> Vec<usize>) -> Partitioning {
    let Partitioning::Hash(places) = partitioning else { return partitioning.clone() };
    let places: Vec<Vec<usize>> = places.iter().map(|place| place.iter().flat_map(|column| map(*column)).collect()).collect();
    if places.iter().any(Vec::is_empty) { Partitioning::Any } else { Partitioning::Hash(places) }
}

/// The join's columns, of both sides where they are equal in every output row; padding breaks that for the padded side.
fn joined(spec: &JoinSpec, left_width: usize, met: &[Partitioning]) -> Partitioning {
    if spec.on.is_empty() {
        return Partitioning::Single;
    }
    let [Partitioning::Hash(left), Partitioning::Hash(right)] = met else { return Partitioning::Any };
    let right = right.iter().map(|place| place.iter().map(|column| left_width + column).collect::<Vec<_>>());
    let places: Vec<Vec<usize>> = match spec.kind {
        JoinKind::Inner => left.iter().zip(right).map(|(left, right)| left.iter().copied().chain(right).collect()).collect(),
        JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left.clone(),
        JoinKind::Right => right.collect(),
        JoinKind::RightSemi | JoinKind::RightAnti => {
            right.map(|place| place.into_iter().map(|column| column - left_width).collect()).collect()
        }
        JoinKind::Full => return Partitioning::Any,
    };
    moved(&Partitioning::Hash(places), |column| {
        spec.output.iter().enumerate().filter(|(_, output)| **output == column).map(|(at, _)| at).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(places: &[&[usize]]) -> Partitioning {
        Partitioning::Hash(places.iter().map(|place| place.to_vec()).collect())
    }

    #[test]
    fn an_exchange_is_needed_only_where_rows_lie_otherwise() {
        let by = |columns: &[usize]| Requirement::keyed(columns.to_vec());
        assert_eq!(by(&[0, 1]).exchange(&hash(&[&[0], &[3, 1]])), None);
        // Key groups come from the whole key in its order: neither another order nor a part of it will do.
        assert_eq!(by(&[1, 0]).exchange(&hash(&[&[0], &[1]])), Some(Distribution::Hash(vec![1, 0])));
        assert_eq!(by(&[0, 1]).exchange(&hash(&[&[0]])), Some(Distribution::Hash(vec![0, 1])));
        assert_eq!(by(&[]).exchange(&hash(&[&[0]])), Some(Distribution::Single));
        assert_eq!(by(&[]).exchange(&Partitioning::Single), None);
        assert_eq!(by(&[0]).exchange(&Partitioning::Single), Some(Distribution::Hash(vec![0])));
        assert_eq!(Requirement::None.exchange(&Partitioning::Any), None);
        assert_eq!(Requirement::Parallel.exchange(&Partitioning::Single), Some(Distribution::RoundRobin));
        assert_eq!(Requirement::Parallel.exchange(&hash(&[&[0]])), None);
    }

    #[test]
    fn keys_are_brought_into_the_order_of_the_input() {
        assert_eq!(aligned(&[2, 0], &hash(&[&[0], &[1, 2]])), Some(vec![0, 2]));
        assert_eq!(aligned(&[2, 0], &hash(&[&[0], &[1]])), None);
        assert_eq!(aligned(&[2, 0], &hash(&[&[0]])), None);
        assert_eq!(aligned(&[2], &Partitioning::Any), None);
    }
}
