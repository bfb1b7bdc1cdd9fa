package middleware

import "sync"

// variants bounds how many responses this pod stores for one URL: otherwise a client could fill the store by
// making up values of a field that Vary names. It knows the specs that were used lately.
type variants struct {
	mu    sync.Mutex // protects what follows
	young map[generation]map[string]struct{}
	old   map[generation]map[string]struct{}
}

// maxSpecs is after how many specs the older half is forgotten.
const maxSpecs = 4096

// admit says whether a variant may be stored. bound not above zero: there is none.
func (v *variants) admit(gen generation, name string, bound int) bool {
	if bound <= 0 {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	names := v.young[gen]
	if names == nil {
		if names = v.old[gen]; names == nil {
			names = make(map[string]struct{})
		}
		if len(v.young) >= maxSpecs {
			v.old, v.young = v.young, nil
		}
		if v.young == nil {
			v.young = make(map[generation]map[string]struct{})
		}
		v.young[gen] = names
	}
	if _, known := names[name]; !known && len(names) >= bound {
		return false
	}
	names[name] = struct{}{}
	return true
}
