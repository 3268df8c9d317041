//! How a concept's name becomes a path, by which the segment finds it: as in iceoryx2's own
//! concepts, directory (`global.root-path` and what iceoryx2 puts behind it), prefix, name and
//! suffix; and of what holds a value of some type, that type's name.

use ginnel::adapter;
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_bb_system_types::file_path::FilePath;
use iceoryx2_bb_system_types::path::Path;
use iceoryx2_cal::dynamic_storage::dynamic_storage_configuration::DynamicStorageConfiguration;
use iceoryx2_cal::named_concept::{
    NamedConceptConfiguration, NamedConceptDoesExistError, NamedConceptListError,
    NamedConceptRemoveError,
};
use std::fmt;
use std::marker::PhantomData;

use crate::segment::{failed, segment};

/// What has names.
pub trait Concept: 'static {
    /// Where its names lie, and how they end, if nobody says otherwise.
    fn defaults() -> (Path, FileName, FileName);

    /// The type of the value that it holds, if any.
    fn type_name() -> &'static str {
        ""
    }
}

/// Where the names of a concept lie.
pub struct Configuration<C> {
    path_hint: Path,
    prefix: FileName,
    suffix: FileName,
    of: PhantomData<fn() -> C>,
}

impl<C: Concept> Default for Configuration<C> {
    fn default() -> Self {
        let (path_hint, prefix, suffix) = C::defaults();
        Self { path_hint, prefix, suffix, of: PhantomData }
    }
}

impl<C> Clone for Configuration<C> {
    fn clone(&self) -> Self {
        let Self { path_hint, prefix, suffix, of } = *self;
        Self { path_hint, prefix, suffix, of }
    }
}

impl<C> PartialEq for Configuration<C> {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.path_hint, of.prefix, of.suffix);
        parts(self) == parts(other)
    }
}

impl<C> Eq for Configuration<C> {}

impl<C> fmt::Debug for Configuration<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}*{}", self.path_hint, self.prefix, self.suffix)
    }
}

impl<C: Concept> NamedConceptConfiguration for Configuration<C> {
    fn prefix(mut self, value: &FileName) -> Self {
        self.prefix = *value;
        self
    }

    fn get_prefix(&self) -> &FileName {
        &self.prefix
    }

    fn suffix(mut self, value: &FileName) -> Self {
        self.suffix = *value;
        self
    }

    fn path_hint(mut self, value: &Path) -> Self {
        self.path_hint = *value;
        self
    }

    fn get_suffix(&self) -> &FileName {
        &self.suffix
    }

    fn get_path_hint(&self) -> &Path {
        &self.path_hint
    }
}

/// The same of a concept that holds a value of a type: its name is a part of the path.
pub struct Typed<C> {
    place: Configuration<C>,
    type_name: String,
}

impl<C> Typed<C> {
    pub(crate) fn set_type_name(&mut self, name: &str) {
        name.clone_into(&mut self.type_name);
    }
}

impl<C: Concept> Default for Typed<C> {
    fn default() -> Self {
        Self { place: Configuration::default(), type_name: C::type_name().to_owned() }
    }
}

impl<C> Clone for Typed<C> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), type_name: self.type_name.clone() }
    }
}

impl<C> PartialEq for Typed<C> {
    fn eq(&self, other: &Self) -> bool {
        (&self.place, &self.type_name) == (&other.place, &other.type_name)
    }
}

impl<C> Eq for Typed<C> {}

impl<C> fmt::Debug for Typed<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.place, self.type_name)
    }
}

impl<C: Concept> NamedConceptConfiguration for Typed<C> {
    fn prefix(mut self, value: &FileName) -> Self {
        self.place = self.place.prefix(value);
        self
    }

    fn get_prefix(&self) -> &FileName {
        self.place.get_prefix()
    }

    fn suffix(mut self, value: &FileName) -> Self {
        self.place = self.place.suffix(value);
        self
    }

    fn path_hint(mut self, value: &Path) -> Self {
        self.place = self.place.path_hint(value);
        self
    }

    fn get_suffix(&self) -> &FileName {
        self.place.get_suffix()
    }

    fn get_path_hint(&self) -> &Path {
        self.place.get_path_hint()
    }

    fn path_for(&self, value: &FileName) -> FilePath {
        self.path_for_with_type(value)
    }

    fn extract_name_from_file(&self, value: &FileName) -> Option<FileName> {
        self.extract_name_from_file_with_type(value)
    }
}

impl<C: Concept> DynamicStorageConfiguration for Typed<C> {
    fn type_name(&self) -> &str {
        &self.type_name
    }
}

/// The path by which the segment knows a name.
pub(crate) fn path<F: NamedConceptConfiguration>(name: &FileName, config: &F) -> Vec<u8> {
    config.path_for(name).as_bytes().to_vec()
}

/// Every name under a configuration.
pub(crate) fn list<F: NamedConceptConfiguration>(
    config: &F,
) -> Result<Vec<FileName>, NamedConceptListError> {
    let all = segment().and_then(adapter::list);
    let all = all.map_err(failed("list what is in the segment"));
    let all = all.map_err(|_| NamedConceptListError::InternalError)?;
    let paths = all.iter().filter_map(|(path, _)| FilePath::new(path).ok());
    Ok(paths.filter_map(|path| config.extract_name_from_path(&path)).collect())
}

/// Takes a name away.
pub(crate) fn remove<F: NamedConceptConfiguration>(
    name: &FileName,
    config: &F,
) -> Result<bool, NamedConceptRemoveError> {
    let removed = segment().and_then(|segment| adapter::remove(segment, &path(name, config)));
    let removed = removed.map_err(failed("remove a name from the segment"));
    removed.map_err(|_| NamedConceptRemoveError::InternalError)
}

/// How far is what has this name? `None`: nothing has it.
pub(crate) fn look<F: NamedConceptConfiguration>(
    name: &FileName,
    config: &F,
) -> Result<Option<adapter::Seen>, NamedConceptDoesExistError> {
    let seen = segment().and_then(|segment| adapter::look(segment, &path(name, config)));
    let seen = seen.map_err(failed("look for a name in the segment"));
    seen.map_err(|_| NamedConceptDoesExistError::InternalError)
}
