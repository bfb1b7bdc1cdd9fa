package main

func Example() {
	main()
	// Output:
	// Bob has written 1850
	// Ann's 1700 is refused: her fencing number is older
	// The price is 1850
}
