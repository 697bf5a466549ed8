"""Objects of named members: not built yet. Every class and function exists and says so when it is used."""

from mooncake import _unbuilt

#: Bytes of one object of a bundle, unless told otherwise.
DEFAULT_BUNDLE_CHUNK_BYTES = 64 << 20
#: The store's code for a missing object.
MISSING_OBJECT_ERROR = -704

CLASSES = """
BundleStore BundleTransferPolicy FieldSchema MooncakeBundleTransfer MooncakeDataProtoRef RemoteBundleRef
StructuredFieldLocation StructuredMemberSlice StructuredObjectPayload StructuredObjectReadSpec StructuredObjectResult
""".split()
FUNCTIONS = """
export_dataproto_ref export_ref import_dataproto_ref import_ref infer_structure is_dataproto_ref_handle raw_destination
tensor_object_buffer
""".split()
_unbuilt.fill(globals(), CLASSES, FUNCTIONS)
