package e2e_test

func isChild() bool  { return false }
func childMain() int { return 1 }
