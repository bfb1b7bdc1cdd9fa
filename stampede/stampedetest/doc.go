// Package stampedetest helps to test code that uses stampede, and stores written for it.
//
//   - [TestStore] is the conformance suite that every [stampede.Store] passes.
//   - [Faulty] wraps a Store and makes its steps late, lost, doubled or refused, at moments that the
//     test chooses.
//   - [Loads] makes loaders that are counted, and that wait, fail, panic or hang when told to.
//   - [Fleet] makes several guards, the pods, over one store.
//
// Everything here works in a bubble of testing/synctest, and without.
package stampedetest
