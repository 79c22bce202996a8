// Package shortcuts is all that goes around the embedded containerd: what containerd would do,
// and this program does itself. With a daemon none of it is used, except for RemoveBundle.
//
//   - Shims.Ensure and Release start and end shims. Containerd would run the shim's binary
//     twice, once to start the other, and 30 pods take 10 % more CPU time (median of 6 rounds).
//   - CreateSandbox: containerd connects to a shim that it did not start only for a container
//     of a sandbox. Ensure needs it.
//   - KeepThirdParty keeps the exit code of a container that ended while nobody served
//     (TestRuntimeClassExitUnseen in hack/e2e).
//   - Shims.RemoveForgotten removes a container that containerd has forgotten: by its shim, by
//     killing the shim, which it finds through /proc, or by "runc delete --force"
//     (TestRemoveWhatContainerdForgot, TestRemoveFromShim).
//   - Shims.RemoveBundle removes a bundle that containerd failed to remove, also under the name
//     that containerd renames it to (TestBundleLeft).
//
// The shim itself stays within containerd's task API.
package shortcuts
