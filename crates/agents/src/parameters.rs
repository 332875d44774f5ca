//! A network's parameters: leaves of the autograd graph that are views of one flat tensor.
//!
//! One flat tensor means Adam in a few passes, a copy to the target network or to the wire in one. The leaves
//! share its memory, so a change of the flat tensor is a change of the network.
//!
//! With bf16 matrices the network computes with a second flat tensor, the values rounded, and the leaves below the output layers
//! are views of that one. Whatever changes the values refreshes it.
//!
//! A weights file is a header that only the shapes determine, followed by the flat tensor's bytes. So writing a file is
//! one copy, and so is loading one with the same header. Files with tensors in another order, which older versions and
//! other programs write, are read tensor by tensor.

use rand::{Rng, RngExt};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};
use tch::{Device, Kind, Tensor};

use settings::choices::Precision;
use settings::networks::Mismatch;

use crate::architecture::{Architecture, ParameterSpec};
use crate::memory;
use crate::read;

/// Bytes of one parameter in a file.
const VALUE_BYTES: usize = size_of::<f32>();

/// All parameters of one network.
#[derive(Debug)]
pub struct Parameters {
    specs: Vec<ParameterSpec>,
    /// What a weights file of these shapes begins with.
    header: Vec<u8>,
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
        Self { header: header(&specs), specs, flat, rounded, leaves }
    }

    /// The same values and not a copy of them, for another thread to read.
    ///
    /// Neither set may be changed as long as both exist.
    pub(crate) fn share(&self) -> Self {
        Self {
            specs: self.specs.clone(),
            header: self.header.clone(),
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

    fn set_bytes(&mut self, values: &[u8]) {
        memory::copy_from_bytes(&mut self.flat, values);
        self.refresh_rounded();
    }

    fn refresh_rounded(&mut self) {
        if let Some(rounded) = &mut self.rounded {
            tch::no_grad(|| rounded.copy_(&self.flat));
        }
    }

    /// The parameters one by one as the network computes with them, weight and bias of each layer, bottom up.
    pub fn leaves(&self) -> &[Tensor] {
        &self.leaves
    }

    /// A second set with the same values.
    pub fn duplicate(&self) -> Self {
        Self::from_flat(self.specs.clone(), self.flat.copy(), self.precision())
    }

    /// The weights as a safetensors file.
    pub fn to_safetensors(&self) -> Vec<u8> {
        let mut file = Vec::new();
        self.write_safetensors(&mut file);
        file
    }

    /// Replaces the contents of `file` by the weights as a safetensors file. If it held one of the same network, its memory
    /// is reused, and the cost is one copy: of memory on the CPU, from the device otherwise.
    pub fn write_safetensors(&self, file: &mut Vec<u8>) {
        file.resize(self.header.len() + self.flat.numel() * VALUE_BYTES, 0);
        let (header, values) = file.split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        read::into(&self.flat, values);
    }

    /// Replaces all values by those of a safetensors file; on an error nothing changes.
    pub fn load_safetensors(&mut self, bytes: &[u8]) -> Result<(), WeightsError> {
        let own = bytes.strip_prefix(self.header.as_slice());
        if let Some(values) = own.filter(|values| values.len() == self.flat.numel() * VALUE_BYTES) {
            self.check_finite(values)?;
            self.set_bytes(values);
            return Ok(());
        }
        let file =
            SafeTensors::deserialize(bytes).map_err(|error| WeightsError::Format(error.to_string()))?;
        self.check_names(&file)?;
        let mut values = Vec::with_capacity(self.flat.numel() * VALUE_BYTES);
        for spec in &self.specs {
            let tensor =
                file.tensor(&spec.name).map_err(|error| WeightsError::Mismatch(error.to_string()))?;
            let same_shape = tensor.shape().iter().map(|&size| size as i64).eq(spec.shape.iter().copied());
            if tensor.dtype() != Dtype::F32 || !same_shape {
                let found = format!("{} is {:?} of {:?}", spec.name, tensor.dtype(), tensor.shape());
                return Err(WeightsError::Mismatch(found));
            }
            values.extend_from_slice(tensor.data());
        }
        self.check_finite(&values)?;
        self.set_bytes(&values);
        Ok(())
    }

    /// Checks values in the order of the flat tensor. The error names the first tensor with one that is not finite.
    fn check_finite(&self, values: &[u8]) -> Result<(), WeightsError> {
        let mut rest = values;
        for spec in &self.specs {
            let (tensor, others) = rest.split_at(elements(spec) * VALUE_BYTES);
            if !are_finite(tensor) {
                return Err(WeightsError::NotFinite(spec.name.clone()));
            }
            rest = others;
        }
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

/// Parameters of a tensor.
fn elements(spec: &ParameterSpec) -> usize {
    spec.shape.iter().product::<i64>() as usize
}

/// The length and the description of the tensors that precede their bytes in a safetensors file.
fn header(specs: &[ParameterSpec]) -> Vec<u8> {
    let mut offset = 0;
    let tensors = specs.iter().map(|spec| {
        let first = offset;
        offset += elements(spec) * VALUE_BYTES;
        let shape = spec.shape.iter().map(|&size| size as usize).collect();
        (spec.name.clone(), TensorInfo { dtype: Dtype::F32, shape, data_offsets: (first, offset) })
    });
    let metadata = Metadata::new(None, tensors.collect()).expect("the tensors follow each other");
    let mut description = serde_json::to_vec(&metadata).expect("names and numbers can be written");
    // The format wants the tensors' bytes to begin at a multiple of eight.
    description.resize(description.len().next_multiple_of(8), b' ');
    [(description.len() as u64).to_le_bytes().as_slice(), &description].concat()
}

/// Whether no little-endian f32 of these bytes is NaN or infinite.
fn are_finite(bytes: &[u8]) -> bool {
    let (values, _) = bytes.as_chunks::<VALUE_BYTES>();
    // Without an early end per value the compiler compares several at a time; a block bounds what is read in vain.
    values
        .chunks(4096)
        .all(|block| block.iter().fold(true, |finite, value| finite & f32::from_le_bytes(*value).is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(names: &[&str]) -> Vec<ParameterSpec> {
        let spec = |(index, name): (usize, &&str)| {
            let shape = vec![index as i64 + 2, 3];
            ParameterSpec { name: (*name).to_owned(), shape, fan_in: 3, is_output: false }
        };
        names.iter().enumerate().map(spec).collect()
    }

    /// Parameters 1, 2, 3 …
    fn counting(names: &[&str]) -> Parameters {
        let mut parameters = Parameters::of_zeros(specs(names), Device::Cpu);
        let count = parameters.flat.numel() as i64;
        parameters.flat.copy_(&Tensor::arange_start(1, count + 1, (Kind::Float, Device::Cpu)));
        parameters
    }

    const NAMES: [&str; 3] = ["conv0.weight", "hidden.weight", "advantage.weight"];

    #[test]
    fn a_file_holds_each_tensor_under_its_name_with_aligned_bytes() {
        let parameters = counting(&NAMES);
        let file = parameters.to_safetensors();
        assert_eq!(parameters.header.len() % 8, 0);
        let read = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.names().len(), NAMES.len());
        let mut next = 1.0;
        for spec in &parameters.specs {
            let tensor = read.tensor(&spec.name).unwrap();
            assert_eq!(tensor.shape(), [spec.shape[0] as usize, 3]);
            for value in tensor.data().as_chunks::<4>().0 {
                assert_eq!(f32::from_le_bytes(*value), next);
                next += 1.0;
            }
        }
    }

    #[test]
    fn a_buffer_of_any_former_contents_becomes_the_same_file() {
        let parameters = counting(&NAMES);
        let file = parameters.to_safetensors();
        for mut former in [Vec::new(), vec![7; 3], vec![7; file.len()], vec![7; 2 * file.len()]] {
            parameters.write_safetensors(&mut former);
            assert_eq!(former, file);
        }
    }

    /// The file as versions before this layout wrote it: sorted by name.
    fn sorted_by_name(parameters: &Parameters) -> Vec<u8> {
        let file = parameters.to_safetensors();
        let read = SafeTensors::deserialize(&file).unwrap();
        safetensors::serialize(read.tensors(), None).unwrap()
    }

    #[test]
    fn tensors_in_another_order_are_loaded_by_name() {
        let source = counting(&NAMES);
        let sorted = sorted_by_name(&source);
        assert_ne!(sorted, source.to_safetensors());
        let mut loaded = Parameters::of_zeros(specs(&NAMES), Device::Cpu);
        loaded.load_safetensors(&sorted).unwrap();
        assert_eq!(loaded.to_safetensors(), source.to_safetensors());
    }

    #[test]
    fn a_file_with_a_value_that_is_not_finite_is_refused_by_the_name_of_its_tensor_and_changes_nothing() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut source = counting(&NAMES);
            // The last value of the second tensor: 6 and 9 values.
            memory::elements_mut::<f32>(&mut source.flat).unwrap()[14] = bad;
            for file in [source.to_safetensors(), sorted_by_name(&source)] {
                let mut loaded = counting(&NAMES);
                let error = loaded.load_safetensors(&file).unwrap_err().to_string();
                assert_eq!(error, "weights are not finite in hidden.weight");
                assert_eq!(loaded.to_safetensors(), counting(&NAMES).to_safetensors());
            }
        }
    }

    #[test]
    fn a_file_that_is_too_short_or_too_long_by_a_value_is_refused() {
        let source = counting(&NAMES);
        let file = source.to_safetensors();
        for wrong in [file[..file.len() - 4].to_vec(), [&file[..], &[0; 4]].concat()] {
            let mut loaded = counting(&NAMES);
            let error = loaded.load_safetensors(&wrong).unwrap_err();
            assert!(matches!(error, WeightsError::Format(_)), "{error}");
        }
    }
}
