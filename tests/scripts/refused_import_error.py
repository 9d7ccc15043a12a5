# shape: imports a package that is not installed
import a_package_that_is_not_installed
import toy

args = toy.parser().parse_args()
toy.setup()
a_package_that_is_not_installed.train()
toy.finish(args.out)
