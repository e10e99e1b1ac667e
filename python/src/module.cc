#include "module.h"

#include <exception>

#include "core/error.h"
#include "core/settings.h"
#include "engine/devices.h"
#include "hub/model_name.h"
#include "step/validate.h"

namespace ingot::python {
namespace {

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_call: return "bad_call";
    case ErrorKind::bad_file: return "bad_file";
    case ErrorKind::cancelled: return "cancelled";
    case ErrorKind::declined: return "declined";
    case ErrorKind::out_of_memory: return "out_of_memory";
    case ErrorKind::overloaded: return "overloaded";
    case ErrorKind::io: return "io";
    case ErrorKind::device: return "device";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

nb::object* error_type = nullptr;       // ingot.Error
nb::object* step_error_type = nullptr;  // ingot.StepError

void raise(const nb::object& type, const Error& error, const StepError* step) {
  nb::object value = type(error.what());
  value.attr("kind") = kind_name(error.kind());
  if (step != nullptr) {
    value.attr("field") = step->field().c_str();
    value.attr("index") = step->index();
    value.attr("value") = step->value();
    value.attr("limit") = step->limit();
  }
  PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StepError& error) {
    raise(*step_error_type, error, &error);
  } catch (const Error& error) {
    raise(*error_type, error, nullptr);
  }
}

nb::object make_exception(nb::module_& m, const char* name, const nb::object& base, const char* doc) {
  nb::object type = nb::borrow(reinterpret_cast<PyObject*>(&PyType_Type))(name, nb::make_tuple(base), nb::dict());
  type.attr("__module__") = "ingot";
  type.attr("__doc__") = doc;
  m.attr(name) = type;
  return type;
}

nb::dict settings() {
  const Settings s = Settings::from_environment();
  nb::dict result;
  result["use_engine"] = s.use_engine;
  result["strict_no_mps"] = s.strict_no_mps;
  result["profile"] = s.profile;
  result["scratch_pool_mb"] = s.scratch_pool_mb;
  result["max_batch_size"] = s.max_batch_size;
  result["topk_logits"] = s.topk_logits;
  result["device"] = s.device.empty() ? "auto" : s.device.c_str();
  return result;
}

nb::list devices() {
  nb::list result;
  for (const DeviceStatus& device : list_devices())
    result.append(nb::make_tuple(device.name.c_str(), device.usable, device.detail.c_str()));
  return result;
}

}  // namespace
}  // namespace ingot::python

NB_MODULE(_ingot, m) {
  namespace nb = nanobind;
  using namespace ingot::python;
  nb::set_leak_warnings(false);  // a host that ends without collecting its garbage is no fault of ours
  m.doc() = "The native part of the ingot package.";
  m.attr("__version__") = INGOT_VERSION;
  error_type = new nb::object(
      make_exception(m, "Error", nb::borrow(PyExc_RuntimeError),
                     "What went wrong, where, and what to do. `kind` is bad_call, bad_file, declined, out_of_memory, "
                     "overloaded, io, device or internal."));
  step_error_type = new nb::object(
      make_exception(m, "StepError", *error_type,
                     "A step that does not hold together: `field`, `index` in it (-1: the field itself), `value` and "
                     "the `limit` it broke. The engine's state is untouched."));
  nb::register_exception_translator(&translate);
  m.def("settings", &settings,
        "The environment variables in force, as a dict. Raises Error naming the variable whose value cannot be meant.");
  m.def("devices", &devices, "A list of (name, usable, detail), one a device.");
  m.def(
      "is_model_name", [](const char* text) { return ingot::hub::parse_model_name(text).has_value(); }, nb::arg("text"),
      "Whether a text can be the name of a model on the hub; what ingot.find_model goes by.");
  bind_step(m);
  bind_keep(m);
  bind_group(m);
  bind_engine(m);
  bind_request(m);
  bind_llm(m);
  bind_chat(m);
}
