//! Plans as data: what they depend on, what they say, and every transfer.

use std::fmt;

use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Conditions, Digest, Plan};
use crate::layout::Layout;

/// All transfers, written one by one.
struct Transfers<'a>(&'a Plan);

impl Serialize for Transfers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.transfer_count()))?;
        for transfer in self.0.transfers() {
            list.serialize_element(&transfer)?;
        }
        list.end()
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Plan", 9)?;
        fields.serialize_field("digest", &self.digest())?;
        fields.serialize_field("source", &self.source)?;
        fields.serialize_field("destination", &self.destination)?;
        fields.serialize_field("conditions", &self.conditions)?;
        fields.serialize_field("transport", &self.transport)?;
        fields.serialize_field("obstacle", &self.obstacle)?;
        fields.serialize_field("load_balance", &self.load_balance())?;
        fields.serialize_field("lower_bound", &self.lower_bound())?;
        fields.serialize_field("transfers", &Transfers(self))?;
        fields.end()
    }
}

/// What a plan is made from. Everything else in its serialised form follows, and is ignored.
#[derive(Deserialize)]
struct Inputs {
    digest: Digest,
    source: Layout,
    destination: Layout,
    conditions: Conditions,
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inputs = Inputs::deserialize(deserializer)?;
        let plan = Self::new(&inputs.source, &inputs.destination, &inputs.conditions);
        let plan = plan.map_err(de::Error::custom)?;
        let found = plan.digest();
        if found == inputs.digest {
            return Ok(plan);
        }
        let changed = Changed { written: inputs.digest, found };
        Err(de::Error::custom(changed))
    }
}

struct Changed {
    written: Digest,
    found: Digest,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, found } = self;
        write!(
            f,
            "the plan was written with digest {written}, but what it says gives {found}: it was \
             changed, or comes from another version"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Placement::{Replicate, Shard};
    use crate::{DataType, Mesh};

    fn plan() -> Plan {
        let mesh = |dims: &[usize], start| Mesh::new(dims, start).unwrap();
        let data_type = DataType::Bfloat16;
        let source = Layout::from_global(mesh(&[2], 0), &[Shard(0)], &[4, 6], data_type).unwrap();
        let destination = source.on(mesh(&[2, 3], 2), &[Replicate, Shard(1)]).unwrap();
        Plan::new(&source, &destination, &Conditions::one_host(8)).unwrap()
    }

    #[test]
    fn plans_survive_json() {
        let text = serde_json::to_string(&plan()).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan());
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["transport"], "single_domain");
        assert_eq!(value["source"]["placements"], serde_json::json!([{"shard": 0}]));
        assert_eq!(value["destination"]["mesh"]["dims"], serde_json::json!([2, 3]));
        let first = serde_json::json!({
            "source": 0, "destination": 2, "source_offset": 0, "destination_offset": 0,
            "loops": [{"count": 2, "source_stride": 12, "destination_stride": 4}],
            "run": 4, "bytes": 8
        });
        assert_eq!(value["transfers"][0], first);
        assert_eq!(value["transfers"].as_array().unwrap().len(), 12);
    }

    #[test]
    fn a_changed_plan_is_refused() {
        let text = serde_json::to_string(&plan()).unwrap();
        let changed = text.replace("\"start_rank\":2", "\"start_rank\":1");
        let error = serde_json::from_str::<Plan>(&changed).unwrap_err().to_string();
        assert!(error.contains("share no rank"), "{error}");
        let changed = text.replace("\"ctas\":8", "\"ctas\":4");
        let error = serde_json::from_str::<Plan>(&changed).unwrap_err().to_string();
        assert!(error.contains("was written with digest"), "{error}");
    }
}
