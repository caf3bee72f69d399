//! Which objects need which, and what DROP says about it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Catalog, FIRST_USER_ID, Object, ObjectBody};
use crate::{
    error::{PlanError, Result, sqlstate},
    parse::statement::ObjectKind,
};

/// Most dependants that a message lists; Postgres' number.
const MAX_LISTED: usize = 100;

/// What a DROP removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropPlan {
    /// Numbers, dependants before what they need.
    pub ids: Vec<u64>,
    /// Text of the NOTICE that dependants go too, and its detail.
    pub notice: Option<(String, Option<String>)>,
}

impl Catalog {
    /// Objects that need `id` directly, by number. The objects of a schema need it.
    pub fn dependants(&self, id: u64) -> impl Iterator<Item = &Object> {
        self.objects().map(AsRef::as_ref).filter(move |object| object.depends_on.contains(&id) || (object.schema == id && id != 0))
    }

    /// What has to go with `targets`.
    ///
    /// # Errors
    /// 2BP01 naming the dependants if there are any besides indexes and `cascade` is not given; 42501 for the server's own schemas.
    pub fn plan_drop(&self, targets: &[u64], cascade: bool, search_path: &[String]) -> Result<DropPlan> {
        let describe = |id: u64| match self.get(id) {
            Some(object) => format!("{} {}", object.kind().noun(), self.shown_name(object, search_path)),
            None => format!("object {id}"),
        };
        for target in targets {
            let system = self.get(*target).is_some_and(|object| matches!(object.body, ObjectBody::Schema) && object.id < FIRST_USER_ID);
            if system && *target != super::PUBLIC_ID {
                let message = format!("cannot drop {} because it is required by the database system", describe(*target));
                return Err(PlanError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
        }
        let reasons = self.reachable(targets);
        let dependants: Vec<(u64, u64)> = reasons
            .iter()
            .filter(|(id, _)| !targets.contains(id) && self.get(**id).is_some_and(|object| object.kind() != ObjectKind::Index))
            .map(|(id, reason)| (*id, *reason))
            .collect();
        if !dependants.is_empty() && !cascade {
            let target = targets.first().copied().unwrap_or_default();
            let message = match targets {
                [_] => format!("cannot drop {} because other objects depend on it", describe(target)),
                _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
            };
            let lines = dependants.iter().map(|(id, reason)| format!("{} depends on {}", describe(*id), describe(*reason)));
            return Err(PlanError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message)
                .with_detail(listed(lines, dependants.len()))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        let notice = match dependants.as_slice() {
            [] => None,
            [(only, _)] => Some((format!("drop cascades to {}", describe(*only)), None)),
            many => {
                let lines = many.iter().map(|(id, _)| format!("drop cascades to {}", describe(*id)));
                Some((format!("drop cascades to {} other objects", many.len()), Some(listed(lines, many.len()))))
            }
        };
        Ok(DropPlan { ids: self.dependants_first(reasons.keys().copied().collect()), notice })
    }

    /// Whether a materialized view or sink reads the relation, if only through views.
    pub fn feeds_job(&self, id: u64) -> bool {
        let is_job =
            |id: &u64| self.get(*id).is_some_and(|object| matches!(object.body, ObjectBody::MaterializedView(_) | ObjectBody::Sink(_)));
        self.reachable(&[id]).keys().any(is_job)
    }

    /// The targets and everything that needs them, each with the object for whose sake it goes.
    fn reachable(&self, targets: &[u64]) -> BTreeMap<u64, u64> {
        let mut reasons: BTreeMap<u64, u64> = targets.iter().map(|id| (*id, *id)).collect();
        let mut open: Vec<u64> = targets.to_vec();
        while let Some(id) = open.pop() {
            for dependant in self.dependants(id) {
                if let std::collections::btree_map::Entry::Vacant(entry) = reasons.entry(dependant.id) {
                    entry.insert(id);
                    open.push(dependant.id);
                }
            }
        }
        reasons
    }

    /// An object is created after what it needs, so that its number is the greater one; but for renames of views, which keep theirs.
    fn dependants_first(&self, ids: BTreeSet<u64>) -> Vec<u64> {
        let mut ordered: Vec<u64> = ids.into_iter().collect();
        ordered.sort_by_key(|id| (self.get(*id).is_some_and(|object| matches!(object.body, ObjectBody::Schema)), std::cmp::Reverse(*id)));
        ordered
    }
}

fn listed(lines: impl Iterator<Item = String>, count: usize) -> String {
    let mut text = lines.take(MAX_LISTED).collect::<Vec<_>>().join("\n");
    if count > MAX_LISTED {
        text.push_str(&format!("\nand {} other objects (see server log for list)", count - MAX_LISTED));
    }
    text
}
