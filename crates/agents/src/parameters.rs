//! A network's parameters: leaves of the autograd graph that are views of one flat tensor.
//!
//! One flat tensor means Adam in a few passes, a copy to the target network or to the wire in one. The leaves
//! share its memory, so a change of the flat tensor is a change of the network.
//!
//! With bf16 matrices the network computes with a second flat tensor, the values rounded, and the leaves below the output layers
//! are views of that one. Whatever changes the values refreshes it.

use rand::{Rng, RngExt};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

use settings::choices::Precision;
use settings::networks::Mismatch;

use crate::architecture::{Architecture, ParameterSpec};
use crate::read;

/// All parameters of one network.
#[derive(Debug)]
pub struct Parameters {
    specs: Vec<ParameterSpec>,
    flat: Tensor,
    /// The values in bf16, if the matrices are computed in bf16.
    rounded: Option<Tensor>,
    leaves: Vec<Tensor>,
}

/// All values of a network in one row, to be changed together with their rounded copy.
pub struct FlatMut<'a> {
    pub values: &'a mut Tensor,
    /// The values in bf16, if there is such a copy.
    pub rounded: Option<&'a mut Tensor>,
}

/// Why a weights file cannot be loaded into this network.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// Not the format.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// A tensor is missing, of another shape or of another type.
    #[error("weights are for another network: {0}")]
    Mismatch(String),
    /// NaN or infinite.
    #[error("weights are not finite in {0}")]
    NotFinite(String),
}

impl Parameters {
    /// Draws first values uniformly from ±1/√fan-in, as PyTorch does, from a generator of the caller's.
    pub fn random(architecture: &Architecture, device: Device, rng: &mut impl Rng) -> Result<Self, Mismatch> {
        let specs = architecture.parameters()?;
        let mut values: Vec<f32> = Vec::new();
        for spec in &specs {
            let bound = 1.0 / (spec.fan_in as f32).sqrt();
            let count = spec.shape.iter().product::<i64>() as usize;
            values.extend((0..count).map(|_| rng.random_range(-bound..bound)));
        }
        let flat = Tensor::from_slice(&values).to_device(device);
        Ok(Self::from_flat(specs, flat, architecture.precision))
    }

    fn from_flat(specs: Vec<ParameterSpec>, flat: Tensor, precision: Precision) -> Self {
        let rounded = (precision == Precision::Bf16).then(|| flat.to_kind(Kind::BFloat16));
        let mut offset = 0;
        let leaves = specs.iter().map(|spec| {
            let count = spec.shape.iter().product::<i64>();
            let row = rounded.as_ref().filter(|_| !spec.is_output).unwrap_or(&flat);
            let leaf = row.narrow(0, offset, count).view(spec.shape.as_slice()).detach();
            offset += count;
            leaf.set_requires_grad(true)
        });
        let leaves = leaves.collect();
        Self { specs, flat, rounded, leaves }
    }

    /// The same values and not a copy of them, for another thread to read.
    ///
    /// Neither set may be changed as long as both exist.
    pub(crate) fn share(&self) -> Self {
        Self {
            specs: self.specs.clone(),
            flat: self.flat.shallow_clone(),
            rounded: self.rounded.as_ref().map(Tensor::shallow_clone),
            leaves: self.leaves.iter().map(Tensor::shallow_clone).collect(),
        }
    }

    /// Parameters of these shapes, all 0, for files of other networks.
    #[cfg(test)]
    pub(crate) fn of_zeros(specs: Vec<ParameterSpec>, device: Device) -> Self {
        let count: i64 = specs.iter().map(|spec| spec.shape.iter().product::<i64>()).sum();
        Self::from_flat(specs, Tensor::zeros([count], (Kind::Float, device)), Precision::F32)
    }

    /// All values in one row; changing them changes the network.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// All values in one row, to be changed together with their rounded copy.
    pub fn flat_mut(&mut self) -> FlatMut<'_> {
        FlatMut { values: &mut self.flat, rounded: self.rounded.as_mut() }
    }

    /// What the values are computed with.
    fn precision(&self) -> Precision {
        if self.rounded.is_some() { Precision::Bf16 } else { Precision::F32 }
    }

    /// Replaces all values.
    pub fn set(&mut self, values: &Tensor) {
        tch::no_grad(|| {
            self.flat.copy_(values);
            if let Some(rounded) = &mut self.rounded {
                rounded.copy_(&self.flat);
            }
        });
    }

    /// The parameters one by one as the network computes with them, weight and bias of each layer, bottom up.
    pub fn leaves(&self) -> &[Tensor] {
        &self.leaves
    }

    /// Takes over another network's values.
    pub fn copy_from(&mut self, other: &Parameters) {
        self.set(&other.flat);
    }

    /// A second set with the same values.
    pub fn duplicate(&self) -> Self {
        Self::from_flat(self.specs.clone(), self.flat.copy(), self.precision())
    }

    fn values(&self) -> Vec<f32> {
        read::floats(&[&self.flat])
    }

    /// The weights as a safetensors file.
    pub fn to_safetensors(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self.values().iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut offset = 0;
        let views = self.specs.iter().map(|spec| {
            let length = spec.shape.iter().product::<i64>() as usize * size_of::<f32>();
            let shape = spec.shape.iter().map(|&size| size as usize).collect();
            let view =
                TensorView::new(Dtype::F32, shape, &bytes[offset..offset + length]).expect("lengths match");
            offset += length;
            (spec.name.as_str(), view)
        });
        safetensors::serialize(views, None).expect("plain tensors can always be written")
    }

    /// Replaces all values by those of a safetensors file; on an error nothing changes.
    pub fn load_safetensors(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|error| WeightsError::Format(error.to_string()))?;
        self.check_names(&file)?;
        let mut values = Vec::with_capacity(self.flat.numel());
        for spec in &self.specs {
            let tensor =
                file.tensor(&spec.name).map_err(|error| WeightsError::Mismatch(error.to_string()))?;
            let same_shape = tensor.shape().iter().map(|&size| size as i64).eq(spec.shape.iter().copied());
            if tensor.dtype() != Dtype::F32 || !same_shape {
                let found = format!("{} is {:?} of {:?}", spec.name, tensor.dtype(), tensor.shape());
                return Err(WeightsError::Mismatch(found));
            }
            let (chunks, _) = tensor.data().as_chunks::<4>();
            values.extend(chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            if values.iter().any(|value| !value.is_finite()) {
                return Err(WeightsError::NotFinite(spec.name.clone()));
            }
        }
        self.set(&Tensor::from_slice(&values));
        Ok(())
    }

    /// Checks that the file has exactly this network's tensors.
    fn check_names(&self, file: &SafeTensors<'_>) -> Result<(), WeightsError> {
        let has = |name: &str| file.tensor(name).is_ok();
        let missing: Vec<_> = self.specs.iter().map(|spec| &*spec.name).filter(|name| !has(name)).collect();
        let own = |name: &&str| self.specs.iter().any(|spec| spec.name == **name);
        let unexpected: Vec<_> = file.names().into_iter().filter(|name| !own(name)).collect();
        if missing.is_empty() && unexpected.is_empty() {
            return Ok(());
        }
        let former = has("value.weight") && missing.iter().all(|name| name.starts_with("value_hidden."));
        let mut problems = Vec::new();
        if !missing.is_empty() {
            problems.push(format!("missing {}", missing.join(", ")));
        }
        if !unexpected.is_empty() {
            problems.push(format!("unexpected {}", unexpected.join(", ")));
        }
        let mut problem = problems.join("; ");
        if former && !missing.is_empty() {
            problem += ": this is a dueling network of an older quiver, whose value and advantage shared one hidden layer; \
                        train a new run, or use the version that wrote it";
        }
        Err(WeightsError::Mismatch(problem))
    }

    /// A tensor of zeros laid out like [`Parameters::flat`].
    pub(crate) fn zeros(&self) -> Tensor {
        Tensor::zeros([self.flat.numel() as i64], (Kind::Float, self.flat.device()))
    }
}
