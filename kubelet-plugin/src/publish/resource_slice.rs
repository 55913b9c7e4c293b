//! Types of our own in the place of a ResourceSlice, for who keeps less of it.

/// Makes a type with the field `metadata` a [`kube::Resource`] of the kind ResourceSlice.
macro_rules! is_resource_slice {
    ($own:ty) => {
        impl kube::Resource for $own {
            type DynamicType = ();
            type Scope = kube::core::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::resource::v1::ResourceSlice as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::resource::v1::ResourceSlice as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::resource::v1::ResourceSlice as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <k8s_openapi::api::resource::v1::ResourceSlice as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use is_resource_slice;
