// Package shortcuts is all that goes around the embedded containerd: what containerd or runc
// would do, and this program does itself. With a daemon none of it is used, except for the
// shim's side (runtime/shim/shortcuts.go) and for RemoveBundle.
//
//   - Shims.Ensure and Release start and end shims. Containerd would run the shim's binary
//     twice, once to start the other. With a daemon, where it does, 30 pods cost 6 % more CPU
//     time than the floor (docs/benchmarks.md). And a containerd that is killed meanwhile leaves
//     the first one running (TestKilledWhileStarting).
//   - CreateSandbox: containerd connects to a shim that it did not start only for a container
//     of a sandbox. Ensure needs it.
//   - Sweep ends shims without containers after a crash, which containerd does not know of
//     since it did not start them (TestKilledWhileStarting).
//   - KeepThirdParty keeps the exit code of a container that ended while nobody served
//     (TestRuntimeClassExitUnseen in hack/e2e).
//   - Shims.RemoveForgotten removes a container that containerd has forgotten: by its shim, by
//     killing the shim, which it finds through /proc, or by "runc delete --force"
//     (TestRemoveWhatContainerdForgot, TestRemoveFromShim).
//   - Shims.RemoveBundle removes a bundle that containerd failed to remove, also under the name
//     that containerd renames it to (TestBundleLeft).
//   - In the shim, fifoStarter does what "runc start" does, which saves a run of runc for each
//     container (TestFIFOStarter).
//   - In the shim, quickDeleter shortens the command "delete", which containerd runs after each
//     container, and saves another run of runc.
//   - In the shim, Shutdown removes the socket that Ensure made before the shim ends, so that
//     the pod's next container does not connect to an ending shim.
//   - In the shim, ensureBundle makes a bundle again for runc's log, since RemoveBundle or a
//     containerd that forgot the container may have removed it (TestDeleteEndingContainer).
//
// The rest of what the shim changes stays within containerd's task API: see deleteTask,
// cleanupOrphan and Pids there.
package shortcuts
